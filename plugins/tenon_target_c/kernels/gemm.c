/* Matrix products of floats: C = A B, then a bias, an addend and ReLU.

   B is packed in panels of 16 columns, [n / 16][k][16], and A in panels of 6 rows, [m / 6][k][6], whose last
   one has as many rows as are left. A tile of 6 x 16 sums stays in registers; blocks of up to 320 along k keep a
   panel of B in the first cache and the rows of A in the second. */
#include <stddef.h>
#include <string.h>

#define K_ROWS 6
#define K_COLUMNS 16
#define K_DEPTH 320

#if defined(__GNUC__)
typedef float k_f8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t k_i8 __attribute__((vector_size(32), aligned(4), may_alias));

/* On rows of 16 floats: t = x + a number, t += x, and ReLU. */
static inline void k_start_row(float *t, const float *x, float start)
{
    *(k_f8 *)t = *(const k_f8 *)x + start;
    *(k_f8 *)(t + 8) = *(const k_f8 *)(x + 8) + start;
}

static inline void k_add_row(float *t, const float *x)
{
    *(k_f8 *)t += *(const k_f8 *)x;
    *(k_f8 *)(t + 8) += *(const k_f8 *)(x + 8);
}

static inline void k_relu_row(float *t)
{
    const k_f8 zero = {0.0f};
    *(k_i8 *)t &= ~(*(const k_f8 *)t < zero);
    *(k_i8 *)(t + 8) &= ~(*(const k_f8 *)(t + 8) < zero);
}

#define K_TILE(ROWS)                                                                          \
    static void k_tile_##ROWS(long k, const float *a, const float *b, float *sums)            \
    {                                                                                         \
        k_f8 s[ROWS][2];                                                                      \
        memset(s, 0, sizeof s);                                                               \
        for (long p = 0; p < k; p++, a += ROWS, b += K_COLUMNS) {                             \
            const k_f8 b0 = *(const k_f8 *)b, b1 = *(const k_f8 *)(b + 8);                    \
            for (int i = 0; i < ROWS; i++) {                                                  \
                s[i][0] += a[i] * b0;                                                         \
                s[i][1] += a[i] * b1;                                                         \
            }                                                                                 \
        }                                                                                     \
        memcpy(sums, s, sizeof s);                                                            \
    }

/* One row of sums, four accumulators a column: the additions to a single one would wait for each other. */
static void k_tile_1(long k, const float *a, const float *b, float *sums)
{
    k_f8 s[4][2];
    long p = 0;
    memset(s, 0, sizeof s);
    for (; p + 4 <= k; p += 4, b += 4 * K_COLUMNS) {
        for (int i = 0; i < 4; i++) {
            s[i][0] += a[p + i] * *(const k_f8 *)(b + i * K_COLUMNS);
            s[i][1] += a[p + i] * *(const k_f8 *)(b + i * K_COLUMNS + 8);
        }
    }
    for (; p < k; p++, b += K_COLUMNS) {
        s[0][0] += a[p] * *(const k_f8 *)b;
        s[0][1] += a[p] * *(const k_f8 *)(b + 8);
    }
    s[0][0] += s[1][0] + (s[2][0] + s[3][0]);
    s[0][1] += s[1][1] + (s[2][1] + s[3][1]);
    memcpy(sums, s[0], sizeof s[0]);
}
#else
#define K_TILE(ROWS)                                                                          \
    static void k_tile_##ROWS(long k, const float *a, const float *b, float *sums)            \
    {                                                                                         \
        for (int i = 0; i < ROWS * K_COLUMNS; i++)                                            \
            sums[i] = 0.0f;                                                                   \
        for (long p = 0; p < k; p++, a += ROWS, b += K_COLUMNS)                               \
            for (int i = 0; i < ROWS; i++)                                                    \
                for (int j = 0; j < K_COLUMNS; j++)                                           \
                    sums[i * K_COLUMNS + j] += a[i] * b[j];                                   \
    }
K_TILE(1)

static inline void k_start_row(float *t, const float *x, float start)
{
    for (int j = 0; j < K_COLUMNS; j++)
        t[j] = x[j] + start;
}

static inline void k_add_row(float *t, const float *x)
{
    for (int j = 0; j < K_COLUMNS; j++)
        t[j] += x[j];
}

static inline void k_relu_row(float *t)
{
    for (int j = 0; j < K_COLUMNS; j++)
        t[j] = t[j] < 0.0f ? 0.0f : t[j];
}
#endif
K_TILE(2)
K_TILE(3)
K_TILE(4)
K_TILE(5)
K_TILE(6)

typedef void (*k_tile)(long k, const float *a, const float *b, float *sums);

static const k_tile k_tiles[K_ROWS + 1] = {NULL,     k_tile_1, k_tile_2, k_tile_3,
                                           k_tile_4, k_tile_5, k_tile_6};

/* The length along k of blocks, all of about the same length. */
long k_depth(long k)
{
    const long blocks = (k + K_DEPTH - 1) / K_DEPTH;
    return blocks > 1 ? ((k + blocks - 1) / blocks + 7) / 8 * 8 : k;
}

/* Pack the rows of a[m][k] at strides into panels. */
void k_pack_rows(long m, long k, const float *a, long row, long column, float *panels)
{
    for (long i = 0; i < m; i += K_ROWS) {
        const long rows = m - i < K_ROWS ? m - i : K_ROWS;
        for (long r = 0; r < rows; r++)
            for (long p = 0; p < k; p++)
                panels[p * rows + r] = a[(i + r) * row + p * column];
        panels += rows * k;
    }
}

/* Pack the columns of b[k][n] at strides into panels; the last one is filled up with zeros. */
void k_pack_columns(long k, long n, const float *b, long row, long column, float *panels)
{
    for (long j = 0; j < n; j += K_COLUMNS) {
        const long columns = n - j < K_COLUMNS ? n - j : K_COLUMNS;
        if (columns == K_COLUMNS && column == 1)
            for (long p = 0; p < k; p++)
                memcpy(panels + p * K_COLUMNS, b + p * row + j, K_COLUMNS * sizeof(float));
        else
            for (long q = 0; q < K_COLUMNS; q++)
                for (long p = 0; p < k; p++)
                    panels[p * K_COLUMNS + q] = q < columns ? b[p * row + (j + q) * column] : 0.0f;
        panels += K_COLUMNS * k;
    }
}

/* Copy fewer than 16 floats. Compilers turn a loop into a call of memcpy, or an instruction that is slow to start. */
static inline void k_copy_some(float *to, const float *from, long count)
{
    if (count & 8) {
        memcpy(to, from, 8 * sizeof(float));
        to += 8;
        from += 8;
    }
    if (count & 4) {
        memcpy(to, from, 4 * sizeof(float));
        to += 4;
        from += 4;
    }
    for (long i = 0; i < (count & 3); i++)
        to[i] = from[i];
}

/* `columns` numbers as a row of 16: in place, or in `wide`. */
static inline const float *k_whole_row(const float *from, long columns, float *wide)
{
    if (columns == K_COLUMNS)
        return from;
    k_copy_some(wide, from, columns);
    return wide;
}

/* Store a tile of sums: added to those in c unless `first`; with biases, addend and ReLU if `last`. `row_bias`,
   `column_bias` and `addend` may be NULL. */
static void k_store(const float *restrict sums, long rows, long columns, float *restrict c, long row, int first, int last,
                    const float *row_bias, const float *column_bias, const float *addend, int relu)
{
    float t[K_COLUMNS], wide[K_COLUMNS] = {0};
    for (long i = 0; i < rows; i++, sums += K_COLUMNS, c += row) {
        k_start_row(t, sums, row_bias && last ? row_bias[i] : 0.0f);
        if (!first)
            k_add_row(t, k_whole_row(c, columns, wide));
        if (last && column_bias)
            k_add_row(t, k_whole_row(column_bias, columns, wide));
        if (last && addend)
            k_add_row(t, k_whole_row(addend + i * row, columns, wide));
        if (last && relu)
            k_relu_row(t);
        if (columns == K_COLUMNS)
            memcpy(c, t, sizeof t);
        else
            k_copy_some(c, t, columns);
    }
}

/* One block along k of c[m][n]: `a_depth` and `b_depth` are the lengths along k of the packed panels. */
void k_block(long m, long n, long k, const float *a, long a_depth, const float *b, long b_depth, float *c,
             long row, int first, int last, const float *row_bias, const float *column_bias,
             const float *addend, int relu)
{
    float sums[K_ROWS * K_COLUMNS];
    for (long j = 0; j < n; j += K_COLUMNS, b += K_COLUMNS * b_depth) {
        const long columns = n - j < K_COLUMNS ? n - j : K_COLUMNS;
        for (long i = 0; i < m; i += K_ROWS) {
            const long rows = m - i < K_ROWS ? m - i : K_ROWS;
            k_tiles[rows](k, a + i * a_depth, b, sums);
            k_store(sums, rows, columns, c + i * row + j, row, first, last, row_bias ? row_bias + i : NULL,
                    column_bias ? column_bias + j : NULL, addend ? addend + i * row + j : NULL, relu);
        }
    }
}

/* c[m][n] = a b with a at strides and b in panels; `scratch` has m * min(k, 320) floats. `addend` may be c. */
void k_gemm(long m, long n, long k, const float *a, long a_row, long a_column, const float *b, float *c,
            long row, const float *bias, const float *addend, int relu, float *scratch)
{
    const int onto = addend == c;
    long p = 0, depth = k_depth(k);
    do {
        depth = k - p < depth ? k - p : depth;
        const float *rows = scratch;
        if (m == 1 && a_column == 1)
            rows = a + p;
        else
            k_pack_rows(m, depth, a + p * a_column, a_row, a_column, scratch);
        k_block(m, n, depth, rows, depth, b + p * K_COLUMNS, k, c, row, p == 0 && !onto, p + depth == k, NULL,
                bias, onto ? NULL : addend, relu);
        p += depth;
    } while (p < k);
}
