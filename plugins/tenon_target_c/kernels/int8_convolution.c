/* Convolution of 8-bit integers: x is minus its zero point, so that padding is 0. The windows of 64
   output positions are packed at a time, into `packed` (64 * depth). `g` as in windows.c; the other arguments as
   those of k_int8_product. */
void k_int8_convolution(const long *g, const int16_t *x, const int8_t *weight, const float *scale,
                        const float *bias, float step, int relu, float *out, uint8_t *steps, float out_step,
                        int out_zero, int16_t *packed)
{
    const long inputs = g[1] / g[21], outputs = g[5] / g[21], k = inputs * g[9] * g[10] * g[11];
    const long image = g[2] * g[3] * g[4], positions = g[6] * g[7] * g[8], depth = (k + 15) / 16 * 16;
    for (long n = 0; n < g[0]; n++)
        for (long group = 0; group < g[21]; group++)
            for (long start = 0; start < positions; start += 64) {
                const long some = positions - start < 64 ? positions - start : 64;
                const long at = (n * g[5] + group * outputs) * positions + start;
                for (long p = 0; p < some; p++) {
                    const long d = (start + p) / (g[7] * g[8]), h = (start + p) / g[8] % g[7], o = (start + p) % g[8];
                    const int16_t *from = x + (n * g[1] + group * inputs) * image;
                    int16_t *to = packed + p * depth, *const end = to + depth;
                    for (long c = 0; c < inputs; c++, from += image)
                        for (long a = 0; a < g[9]; a++)
                            for (long b = 0; b < g[10]; b++) {
                                const long iz = d * g[12] + a * g[18] - g[15];
                                const long iy = h * g[13] + b * g[19] - g[16];
                                const int inside = iz >= 0 && iz < g[2] && iy >= 0 && iy < g[3];
                                const long line = (iz * g[3] + iy) * g[4], left = o * g[14] - g[17];
                                for (long e = 0; e < g[11]; e++) {
                                    const long ix = left + e * g[20];
                                    *to++ = (int16_t)(inside && ix >= 0 && ix < g[4] ? from[line + ix] : 0);
                                }
                            }
                    while (to < end)
                        *to++ = 0;
                }
                k_int8_product(some, outputs, depth, packed, weight + group * outputs * depth,
                               scale + group * outputs, bias ? bias + group * outputs : NULL, step, relu,
                               out ? out + at : NULL, steps ? steps + at : NULL, out_step, out_zero, 1, positions);
            }
}
