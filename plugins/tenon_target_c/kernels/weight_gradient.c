/* The gradient of a convolution for its weight: grad times the transposed windows, added up over the batch.
   `matrix` has k * positions floats (k = inputs * taps), `panels` (k rounded up to 16) * positions, `rows`
   outputs * min(positions, 320). `g` as in windows.c. */
void k_weight_gradient(const long *g, const float *x, const float *grad, float *out, float *matrix, float *panels,
                       float *rows)
{
    const long inputs = g[1] / g[21], outputs = g[5] / g[21], k = inputs * g[9] * g[10] * g[11];
    const long image = g[2] * g[3] * g[4], positions = g[6] * g[7] * g[8];
    for (long i = 0; i < g[5] * k; i++)
        out[i] = 0.0f;
    for (long n = 0; n < g[0]; n++)
        for (long group = 0; group < g[21]; group++) {
            float *own = out + group * outputs * k;
            k_window_rows(g, x + (n * g[1] + group * inputs) * image, 0, k, 0, positions, matrix, positions, 0, 0);
            k_pack_columns(positions, k, matrix, 1, positions, panels);
            k_gemm(outputs, k, positions, grad + (n * g[5] + group * outputs) * positions, positions, 1, panels, own,
                   k, NULL, own, 0, rows);
        }
}
