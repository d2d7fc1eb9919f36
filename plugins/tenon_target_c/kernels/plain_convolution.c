/* For T = f64 i32 i64 i16 i8 u8. */
/* Convolution of other types than float, its transpose and its gradient for the weight: the sizes `g` of windows.c,
   in plain loops along the lines of the output. */

/* The output positions [first, last) of line h of plane d for which element t of the window is inside the input.
   Returns the index of the input element for position 0. */
static long k_span_under_$(const long *g, long t, long d, long h, long *first, long *last)
{
    const long z = d * g[12] + t / (g[10] * g[11]) * g[18] - g[15];
    const long y = h * g[13] + t / g[11] % g[10] * g[19] - g[16];
    const long left = t % g[11] * g[20] - g[17], stride = g[14];
    *first = left < 0 ? (-left + stride - 1) / stride : 0;
    *last = g[8];
    if ((g[8] - 1) * stride + left >= g[4])
        *last = g[4] > left ? (g[4] - 1 - left) / stride + 1 : 0;
    if (z < 0 || z >= g[2] || y < 0 || y >= g[3])
        *last = 0;
    return (z * g[3] + y) * g[4] + left;
}

void k_plain_convolution_$(const long *g, const T *x, const T *weight, const T *bias, T *out)
{
    const long inputs = g[1] / g[21], outputs = g[5] / g[21], taps = g[9] * g[10] * g[11];
    const long image = g[2] * g[3] * g[4];
    for (long n = 0; n < g[0] * g[5]; n++) {
        const long filter = n % g[5];
        const T *in = x + (n / g[5] * g[1] + filter / outputs * inputs) * image, *w = weight + filter * inputs * taps;
        for (long d = 0; d < g[6]; d++)
            for (long h = 0; h < g[7]; h++, out += g[8]) {
                for (long o = 0; o < g[8]; o++)
                    out[o] = bias ? bias[filter] : 0;
                for (long c = 0; c < inputs; c++)
                    for (long t = 0; t < taps; t++) {
                        long first, last;
                        const long at = c * image + k_span_under_$(g, t, d, h, &first, &last);
                        for (long o = first; o < last; o++)
                            out[o] = k_add_$(out[o], k_multiply_$(w[c * taps + t], in[at + o * g[14]]));
                    }
            }
    }
}

/* The transposed convolution: grad has the shape of the convolution's output, out that of its input. */
void k_plain_transposed_convolution_$(const long *g, const T *grad, const T *weight, T *out)
{
    const long inputs = g[1] / g[21], outputs = g[5] / g[21], taps = g[9] * g[10] * g[11];
    const long image = g[2] * g[3] * g[4];
    for (long i = 0; i < g[0] * g[1] * image; i++)
        out[i] = 0;
    for (long n = 0; n < g[0] * g[5]; n++) {
        const long filter = n % g[5];
        const T *w = weight + filter * inputs * taps;
        T *to = out + (n / g[5] * g[1] + filter / outputs * inputs) * image;
        for (long d = 0; d < g[6]; d++)
            for (long h = 0; h < g[7]; h++, grad += g[8])
                for (long c = 0; c < inputs; c++)
                    for (long t = 0; t < taps; t++) {
                        long first, last;
                        const long at = c * image + k_span_under_$(g, t, d, h, &first, &last);
                        for (long o = first; o < last; o++) {
                            T *const place = to + at + o * g[14];
                            *place = k_add_$(*place, k_multiply_$(w[c * taps + t], grad[o]));
                        }
                    }
    }
}

/* The gradient for the weight. */
void k_plain_weight_gradient_$(const long *g, const T *x, const T *grad, T *out)
{
    const long inputs = g[1] / g[21], outputs = g[5] / g[21], taps = g[9] * g[10] * g[11];
    const long image = g[2] * g[3] * g[4];
    for (long i = 0; i < g[5] * inputs * taps; i++)
        out[i] = 0;
    for (long n = 0; n < g[0] * g[5]; n++) {
        const long filter = n % g[5];
        const T *in = x + (n / g[5] * g[1] + filter / outputs * inputs) * image;
        T *w = out + filter * inputs * taps;
        for (long d = 0; d < g[6]; d++)
            for (long h = 0; h < g[7]; h++, grad += g[8])
                for (long c = 0; c < inputs; c++)
                    for (long t = 0; t < taps; t++) {
                        long first, last;
                        const long at = c * image + k_span_under_$(g, t, d, h, &first, &last);
                        T sum = 0;
                        for (long o = first; o < last; o++)
                            sum = k_add_$(sum, k_multiply_$(grad[o], in[at + o * g[14]]));
                        w[c * taps + t] = k_add_$(w[c * taps + t], sum);
                    }
    }
}
