/* For T = f32 f64. */
/* Means of the windows that divide `sizes[1..3]` into `sizes[4..6]` parts; `sizes[0]` images. */
void k_adaptive_pool_$(const long *g, const T *x, T *out)
{
    const long image = g[1] * g[2] * g[3];
    for (long n = 0; n < g[0]; n++, x += image)
        for (long d = 0; d < g[4]; d++)
            for (long h = 0; h < g[5]; h++)
                for (long o = 0; o < g[6]; o++) {
                    const long z0 = d * g[1] / g[4], z1 = ((d + 1) * g[1] + g[4] - 1) / g[4];
                    const long y0 = h * g[2] / g[5], y1 = ((h + 1) * g[2] + g[5] - 1) / g[5];
                    const long x0 = o * g[3] / g[6], x1 = ((o + 1) * g[3] + g[6] - 1) / g[6];
                    double sum = 0.0;
                    for (long z = z0; z < z1; z++)
                        for (long y = y0; y < y1; y++)
                            for (long w = x0; w < x1; w++)
                                sum += x[(z * g[2] + y) * g[3] + w];
                    *out++ = (T)(sum / (double)((z1 - z0) * (y1 - y0) * (x1 - x0)));
                }
}
