/* For T = f32 f64. */
/* Means of windows: `g` as in pooling.c; the sum of a window is divided by `divisor`, or if that is 0 by the
   number of its elements, with those of the padding if `padded`. */
static long k_extent_$(long place, long kernel, long padding, long size, int padded, long *first, long *last)
{
    const long start = place, stop = start + kernel;
    const long end = stop < size + padding ? stop : size + padding;
    *first = start > 0 ? start : 0;
    *last = end < size ? end : size;
    return padded ? end - start : *last - *first;
}

void k_average_pool_$(const long *g, const T *x, T divisor, int padded, T *out)
{
    const long image = g[1] * g[2] * g[3];
    for (long n = 0; n < g[0]; n++, x += image)
        for (long d = 0; d < g[4]; d++)
            for (long h = 0; h < g[5]; h++)
                for (long o = 0; o < g[6]; o++) {
                    long z0, z1, y0, y1, x0, x1;
                    const long nz = k_extent_$(d * g[10] - g[13], g[7], g[13], g[1], padded, &z0, &z1);
                    const long ny = k_extent_$(h * g[11] - g[14], g[8], g[14], g[2], padded, &y0, &y1);
                    const long nx = k_extent_$(o * g[12] - g[15], g[9], g[15], g[3], padded, &x0, &x1);
                    T sum = 0;
                    for (long z = z0; z < z1; z++)
                        for (long y = y0; y < y1; y++)
                            for (long w = x0; w < x1; w++)
                                sum += x[(z * g[2] + y) * g[3] + w];
                    *out++ = sum / (divisor != 0 ? divisor : (T)(nz * ny * nx));
                }
}
