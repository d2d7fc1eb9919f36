/* The maximum of each window, without padding. `g` as in pooling.c. */
void k_int8_max_pool(const long *g, const uint8_t *x, uint8_t *out)
{
    const long image = g[1] * g[2] * g[3];
    for (long n = 0; n < g[0]; n++, x += image)
        for (long d = 0; d < g[4]; d++)
            for (long h = 0; h < g[5]; h++)
                for (long o = 0; o < g[6]; o++) {
                    uint8_t most = 0;
                    for (long t = 0; t < g[7] * g[8] * g[9]; t++) {
                        const long iz = d * g[10] + t / (g[8] * g[9]) - g[13];
                        const long iy = h * g[11] + t / g[9] % g[8] - g[14];
                        const long ix = o * g[12] + t % g[9] - g[15];
                        if (iz >= 0 && iz < g[1] && iy >= 0 && iy < g[2] && ix >= 0 && ix < g[3] &&
                            x[(iz * g[2] + iy) * g[3] + ix] > most)
                            most = x[(iz * g[2] + iy) * g[3] + ix];
                    }
                    *out++ = most;
                }
}
