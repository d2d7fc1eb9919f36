/* For T = f32 f64. */
/* The gradient of `k_adaptive_pool`. */
void k_adaptive_pool_gradient_$(const long *g, const T *grad, T *out)
{
    const long image = g[1] * g[2] * g[3];
    for (long i = 0; i < g[0] * image; i++)
        out[i] = 0;
    for (long n = 0; n < g[0]; n++, out += image)
        for (long i = 0; i < g[4] * g[5] * g[6]; i++) {
            const struct part p = k_part(g, i);
            const T share = *grad++ / (T)k_part_size(&p);
            for (long z = p.first[0]; z < p.last[0]; z++)
                for (long y = p.first[1]; y < p.last[1]; y++)
                    for (long w = p.first[2]; w < p.last[2]; w++)
                        out[(z * g[2] + y) * g[3] + w] += share;
        }
}
