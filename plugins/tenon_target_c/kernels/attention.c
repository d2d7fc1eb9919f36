/* Attention of b0 * b1 heads: softmax(scale * query key^T + bias) value. `sizes` has 0-1 b0, b1, 2 queries,
   3 keys, 4 their width, 5 the values' width; then the strides along b0, b1, rows and columns of query (6-9),
   key (10-13), value (14-17), out (18-21, columns side by side) and bias (22-25), which may be NULL.
   `causal`: query i sees keys up to i; `safe`: a query that sees none gives 0. `scratch` has packed keys
   (width * keys rounded up to 16), values (keys * width rounded up to 16), 48 rows of scores and 48 packed
   rows of up to 320. */
#define K_QUERIES 48

/* The product of `seen` columns of scores with the first rows of values that were packed `depth` deep. */
static void k_attention_values(long m, long n, long seen, long depth, const float *scores, const float *values,
                               float *out, long row, float *rows)
{
    long part = k_depth(seen);
    for (long p = 0; p < seen; p += part) {
        part = seen - p < part ? seen - p : part;
        k_pack_rows(m, part, scores + p, seen, 1, rows);
        k_block(m, n, part, rows, part, values + p * 16, depth, out, row, p == 0, p + part == seen, NULL, NULL,
                NULL, 0);
    }
}

void k_attention(const long *sizes, const float *query, const float *key, const float *value, const float *bias,
                 float scale, int causal, int safe, float *out, float *scratch)
{
    const long queries = sizes[2], keys = sizes[3], width = sizes[4], breadth = sizes[5];
    const long *q = sizes + 6, *k = sizes + 10, *v = sizes + 14, *o = sizes + 18, *z = sizes + 22;
    float *const packed = scratch + (keys + 15) / 16 * 16 * width;
    float *const scores = packed + (breadth + 15) / 16 * 16 * keys;
    float *const rows = scores + K_QUERIES * keys;
    for (long i = 0; i < sizes[0]; i++)
        for (long j = 0; j < sizes[1]; j++) {
            const float *own = query + i * q[0] + j * q[1];
            k_pack_columns(width, keys, key + i * k[0] + j * k[1], k[3], k[2], scratch);
            k_pack_columns(keys, breadth, value + i * v[0] + j * v[1], v[2], v[3], packed);
            for (long first = 0; first < queries; first += K_QUERIES) {
                const long m = queries - first < K_QUERIES ? queries - first : K_QUERIES;
                const long seen = causal && first + m < keys ? first + m : keys;
                k_gemm(m, seen, width, own + first * q[2], q[2], q[3], scratch, scores, seen, NULL, NULL, 0, rows);
                for (long r = 0; r < m; r++) {
                    float *row = scores + r * seen;
                    const long limit = causal && first + r + 1 < seen ? first + r + 1 : seen;
                    for (long c = 0; c < limit; c++)
                        row[c] *= scale;
                    if (bias) {
                        const float *own_bias = bias + i * z[0] + j * z[1] + (first + r) * z[2];
                        for (long c = 0; c < limit; c++)
                            row[c] += own_bias[c * z[3]];
                    }
                    k_softmax_row(limit, row, safe);
                    for (long c = limit; c < seen; c++)
                        row[c] = 0.0f;
                }
                k_attention_values(m, breadth, seen, keys, scores, packed,
                                   out + i * o[0] + j * o[1] + first * o[2], o[2], rows);
            }
        }
}
