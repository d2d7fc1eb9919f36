/* Convolution as a product of the weights, packed in panels of rows, with the windows of the input: `g` has the
   sizes (see windows.c). Blocks of up to 320 rows and 192 output positions of the windows are packed at a time, into
   `scratch` (320 * 192 floats). Small images are first copied with their padding to `padded`, unless that is NULL;
   it has 8 floats more than the images of a group. */
#define K_POSITIONS 192

/* Row i of the weights, a multiple of 6, begins the panel at i * k, as all panels before it have 6 rows; in a panel
   of `rows` rows (the last may have fewer than 6), element p along k begins p * rows later. */
static void k_convolution_rows(long m, long count, long depth, long p, long k, const float *weight,
                               const float *panels, float *out, long positions, const float *bias,
                               const float *addend, int relu)
{
    const long whole = m / 6 * 6, rest = m - whole;
    if (whole)
        k_block(whole, count, depth, weight + p * 6, k, panels, depth, out, positions, p == 0, p + depth == k,
                bias, NULL, addend, relu);
    if (rest)
        k_block(rest, count, depth, weight + whole * k + p * rest, k, panels, depth, out + whole * positions,
                positions, p == 0, p + depth == k, bias ? bias + whole : NULL, NULL,
                addend ? addend + whole * positions : NULL, relu);
}

void k_convolution(const long *g, const float *x, const float *weight, const float *bias, const float *addend,
                   int relu, float *out, float *padded, float *scratch)
{
    const long inputs = g[1] / g[21], outputs = g[5] / g[21], k = inputs * g[9] * g[10] * g[11];
    const long image = g[2] * g[3] * g[4], positions = g[6] * g[7] * g[8];
    for (long n = 0; n < g[0]; n++)
        for (long group = 0; group < g[21]; group++) {
            const float *own = x + (n * g[1] + group * inputs) * image;
            const long *sizes = g;
            long wide[22];
            const long offset = (n * g[5] + group * outputs) * positions;
            if (padded) {
                k_pad_images(g, inputs, own, padded, wide);
                sizes = wide;
                own = padded;
            }
            for (long start = 0; start < positions; start += K_POSITIONS) {
                const long count = positions - start < K_POSITIONS ? positions - start : K_POSITIONS;
                long depth = k_depth(k);
                for (long p = 0; p < k; p += depth) {
                    depth = k - p < depth ? k - p : depth;
                    k_window_rows(sizes, own, p, depth, start, count, scratch, 0, 1, padded != NULL);
                    for (long i = 0; i < outputs; i += 96) {
                        const long m = outputs - i < 96 ? outputs - i : 96;
                        const long at = offset + i * positions + start;
                        k_convolution_rows(m, count, depth, p, k, weight + (group * outputs + i) * k, scratch,
                                           out + at, positions, bias ? bias + group * outputs + i : NULL,
                                           addend ? addend + at : NULL, relu);
                    }
                }
            }
        }
}
