/* For T = f32 f64. */
/* The gradient of `k_average_pool`: each window's gradient over its divisor, added to all of its elements. */
void k_average_pool_gradient_$(const long *g, const T *grad, T divisor, int padded, T *out)
{
    const long image = g[1] * g[2] * g[3];
    for (long i = 0; i < g[0] * image; i++)
        out[i] = 0;
    for (long n = 0; n < g[0]; n++, out += image)
        for (long d = 0; d < g[4]; d++)
            for (long h = 0; h < g[5]; h++)
                for (long o = 0; o < g[6]; o++) {
                    long lo[3], hi[3], count = 1;
                    const long place[3] = {d, h, o};
                    T share;
                    for (int a = 0; a < 3; a++) {
                        const long size = g[1 + a], start = place[a] * g[10 + a] - g[13 + a];
                        const long limit = size + g[13 + a];
                        const long stop = start + g[7 + a] < limit ? start + g[7 + a] : limit;
                        lo[a] = start > 0 ? start : 0;
                        hi[a] = stop < size ? stop : size;
                        count *= padded ? stop - start : hi[a] - lo[a];
                    }
                    share = *grad++ / (divisor != 0 ? divisor : (T)count);
                    for (long z = lo[0]; z < hi[0]; z++)
                        for (long y = lo[1]; y < hi[1]; y++)
                            for (long w = lo[2]; w < hi[2]; w++)
                                out[(z * g[2] + y) * g[3] + w] += share;
                }
}
