/* Transposed convolution, the gradient of a convolution for its input: `weight` has the transposed filters,
   [group][inputs * taps][outputs], as panels of rows; `grad` is the convolution's output. The products go to
   `columns` (inputs * taps * positions floats) and are then added to the places under their windows. `panels`
   has outputs * (positions rounded up to 16) floats. `g` as in windows.c, for the convolution. */
void k_transposed_convolution(const long *g, const float *grad, const float *weight, const float *bias, float *out,
                              float *columns, float *panels)
{
    const long inputs = g[1] / g[21], outputs = g[5] / g[21], taps = g[9] * g[10] * g[11];
    const long image = g[2] * g[3] * g[4], positions = g[6] * g[7] * g[8];
    const long rows = inputs * taps;
    for (long n = 0; n < g[0]; n++)
        for (long group = 0; group < g[21]; group++) {
            float *own = out + (n * g[1] + group * inputs) * image;
            k_pack_columns(outputs, positions, grad + (n * g[5] + group * outputs) * positions, positions, 1,
                           panels);
            k_packed_product(rows, positions, outputs, weight + group * rows * outputs, panels, columns);
            for (long c = 0; c < inputs; c++)
                for (long i = 0; i < image; i++)
                    own[c * image + i] = bias ? bias[group * inputs + c] : 0.0f;
            for (long r = 0; r < rows; r++) {
                const long t = r % taps;
                const float *column = columns + r * positions;
                for (long d = 0; d < g[6]; d++)
                    for (long h = 0; h < g[7]; h++, column += g[8]) {
                        const long iz = d * g[12] + t / (g[10] * g[11]) * g[18] - g[15];
                        const long iy = h * g[13] + t / g[11] % g[10] * g[19] - g[16];
                        long at = t % g[11] * g[20] - g[17];
                        float *line;
                        if (iz < 0 || iz >= g[2] || iy < 0 || iy >= g[3])
                            continue;
                        line = own + r / taps * image + (iz * g[3] + iy) * g[4];
                        for (long o = 0; o < g[8]; o++, at += g[14])
                            if (at >= 0 && at < g[4])
                                line[at] += column[o];
                    }
            }
        }
}
