/* For T = f32 f64. */
/* grad at the first maximum of each window, or its last NaN; summed where windows overlap. `g` as in pooling.c. */
void k_max_pool_gradient_$(const long *g, const T *grad, const T *x, T *out)
{
    const long image = g[1] * g[2] * g[3];
    for (long i = 0; i < g[0] * image; i++)
        out[i] = 0;
    for (long n = 0; n < g[0]; n++, x += image, out += image)
        for (long d = 0; d < g[4]; d++)
            for (long h = 0; h < g[5]; h++)
                for (long o = 0; o < g[6]; o++, grad++) {
                    long best = -1;
                    for (long t = 0; t < g[7] * g[8] * g[9]; t++) {
                        const long iz = d * g[10] + t / (g[8] * g[9]) * g[16] - g[13];
                        const long iy = h * g[11] + t / g[9] % g[8] * g[17] - g[14];
                        const long ix = o * g[12] + t % g[9] * g[18] - g[15];
                        const long at = (iz * g[2] + iy) * g[3] + ix;
                        if (iz < 0 || iz >= g[1] || iy < 0 || iy >= g[2] || ix < 0 || ix >= g[3])
                            continue;
                        if (best < 0 || x[at] > x[best] || k_nan_$(x[at]))
                            best = at;
                    }
                    if (best >= 0)
                        out[best] += *grad;
                }
}
