/* For T = f32 f64. */
/* Means of the windows that divide `sizes[1..3]` into `sizes[4..6]` parts; `sizes[0]` images. */
void k_adaptive_pool_$(const long *g, const T *x, T *out)
{
    const long image = g[1] * g[2] * g[3];
    for (long n = 0; n < g[0]; n++, x += image)
        for (long i = 0; i < g[4] * g[5] * g[6]; i++) {
            const struct part p = k_part(g, i);
            double sum = 0.0;
            for (long z = p.first[0]; z < p.last[0]; z++)
                for (long y = p.first[1]; y < p.last[1]; y++)
                    for (long w = p.first[2]; w < p.last[2]; w++)
                        sum += x[(z * g[2] + y) * g[3] + w];
            *out++ = (T)(sum / (double)k_part_size(&p));
        }
}
