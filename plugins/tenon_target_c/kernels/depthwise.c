/* Convolution of each channel with filters of its own (as many groups as channels); `g` as in windows.c. */
void k_depthwise(const long *g, const float *x, const float *weight, const float *bias, const float *addend,
                 int relu, float *out)
{
    const long taps = g[9] * g[10] * g[11], image = g[2] * g[3] * g[4], positions = g[6] * g[7] * g[8];
    const long multiple = g[5] / g[1], width = g[8];
    for (long n = 0; n < g[0] * g[5]; n++) {
        const long filter = n % g[5];
        const float *in = x + (n / g[5] * g[1] + filter / multiple) * image;
        const float *w = weight + filter * taps;
        const float start = bias ? bias[filter] : 0.0f;
        float *line = out + n * positions;
        for (long d = 0; d < g[6]; d++)
            for (long h = 0; h < g[7]; h++, line += width) {
                for (long o = 0; o < width; o++)
                    line[o] = start;
                for (long t = 0; t < taps; t++) {
                    const long iz = d * g[12] + t / (g[10] * g[11]) * g[18] - g[15];
                    const long iy = h * g[13] + t / g[11] % g[10] * g[19] - g[16];
                    const long left = t % g[11] * g[20] - g[17], stride = g[14];
                    const float s = w[t];
                    long first = 0, last = width;
                    const float *row;
                    if (iz < 0 || iz >= g[2] || iy < 0 || iy >= g[3])
                        continue;
                    row = in + (iz * g[3] + iy) * g[4];
                    if (left < 0)
                        first = (-left + stride - 1) / stride;
                    if ((width - 1) * stride + left >= g[4])
                        last = g[4] > left ? (g[4] - 1 - left) / stride + 1 : 0;
                    if (stride == 1)
                        for (long o = first; o < last; o++)
                            line[o] += s * row[o + left];
                    else
                        for (long o = first; o < last; o++)
                            line[o] += s * row[o * stride + left];
                }
                if (addend)
                    for (long o = 0; o < width; o++)
                        line[o] += addend[line - out + o];
                if (relu)
                    for (long o = 0; o < width; o++)
                        line[o] = 0.0f > line[o] ? 0.0f : line[o];
            }
    }
}
