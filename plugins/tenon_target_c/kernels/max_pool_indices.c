/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* The flat index, within its image, of the first maximum (the last NaN) of each window. `g` as in pooling.c. */
void k_max_pool_indices_$(const long *g, const T *x, int64_t *out)
{
    const long image = g[1] * g[2] * g[3];
    for (long n = 0; n < g[0]; n++, x += image)
        for (long d = 0; d < g[4]; d++)
            for (long h = 0; h < g[5]; h++)
                for (long o = 0; o < g[6]; o++) {
                    long best = -1;
                    for (long t = 0; t < g[7] * g[8] * g[9]; t++) {
                        const long z = d * g[10] - g[13] + t / (g[8] * g[9]) * g[16];
                        const long y = h * g[11] - g[14] + t / g[9] % g[8] * g[17];
                        const long w = o * g[12] - g[15] + t % g[9] * g[18];
                        const long at = (z * g[2] + y) * g[3] + w;
                        if (z < 0 || z >= g[1] || y < 0 || y >= g[2] || w < 0 || w >= g[3])
                            continue;
                        if (best < 0 || k_nan_$(x[at]) || x[at] > x[best])
                            best = at;
                    }
                    *out++ = best;
                }
}

/* The same for windows that divide the sizes g[1..3] into g[4..6] parts. */
void k_adaptive_max_pool_indices_$(const long *g, const T *x, int64_t *out)
{
    const long image = g[1] * g[2] * g[3];
    for (long n = 0; n < g[0]; n++, x += image)
        for (long i = 0; i < g[4] * g[5] * g[6]; i++) {
            const struct part p = k_part(g, i);
            long best = (p.first[0] * g[2] + p.first[1]) * g[3] + p.first[2];
            for (long z = p.first[0]; z < p.last[0]; z++)
                for (long y = p.first[1]; y < p.last[1]; y++)
                    for (long w = p.first[2]; w < p.last[2]; w++) {
                        const long at = (z * g[2] + y) * g[3] + w;
                        if (k_nan_$(x[at]) || x[at] > x[best])
                            best = at;
                    }
            *out++ = best;
        }
}
