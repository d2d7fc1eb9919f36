/* Layers of 8-bit integers. Activations are 16-bit integers minus their zero point, in rows of `depth`
   numbers (k rounded up to 16, filled up with zeros); weights are rows of int8 of the same depth. Sums are exact. */
#include <string.h>

/* Quantize to 0..255: x / step + zero, rounded to nearest. */
static uint8_t k_to_steps(float x, float step, float zero)
{
    const float y = rintf(x / step + zero);
    return (uint8_t)(y > 255.0f ? 255.0f : (y > 0.0f ? y : 0.0f));
}

void k_int8_from_float(long rows, long k, const float *x, float step, int zero, int16_t *out)
{
    const long depth = (k + 15) / 16 * 16;
    for (long r = 0; r < rows; r++, x += k, out += depth) {
        for (long i = 0; i < k; i++)
            out[i] = (int16_t)(k_to_steps(x[i], step, (float)zero) - zero);
        for (long i = k; i < depth; i++)
            out[i] = 0;
    }
}

void k_int8_from_steps(long rows, long k, const uint8_t *x, int zero, int16_t *out)
{
    const long depth = (k + 15) / 16 * 16;
    for (long r = 0; r < rows; r++, x += k, out += depth) {
        for (long i = 0; i < k; i++)
            out[i] = (int16_t)(x[i] - zero);
        for (long i = k; i < depth; i++)
            out[i] = 0;
    }
}

/* Quantize so that the largest magnitude becomes 127; *step receives the scale, NaN if a number is not finite. */
void k_int8_dynamic(long rows, long k, const float *x, float *step, int16_t *out)
{
    const long depth = (k + 15) / 16 * 16;
    float size = 0.0f, factor;
    for (long i = 0; i < rows * k; i++)
        size = k_maximumf(size, fabsf(x[i]));
    memset(out, 0, (size_t)(rows * depth) * sizeof *out);
    *step = size < INFINITY ? 0.0f : NAN;
    if (!(size >= 1e-36f && size < INFINITY))
        return;
    *step = size / 127.0f;
    factor = 127.0f / size;
    for (long r = 0; r < rows; r++, x += k, out += depth)
        for (long i = 0; i < k; i++)
            out[i] = (int16_t)rintf(x[i] * factor);
}

/* The products of 4 rows of weights and a row of x. */
static void k_four_sums(long depth, const int16_t *restrict x, const int8_t *restrict w, int32_t *restrict sums)
{
    int32_t a = 0, b = 0, c = 0, d = 0;
    for (long i = 0; i < depth; i++) {
        a += (int32_t)x[i] * w[i];
        b += (int32_t)x[i] * w[depth + i];
        c += (int32_t)x[i] * w[2 * depth + i];
        d += (int32_t)x[i] * w[3 * depth + i];
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}

static int32_t k_one_sum(long depth, const int16_t *restrict x, const int8_t *restrict w)
{
    int32_t sum = 0;
    for (long i = 0; i < depth; i++)
        sum += (int32_t)x[i] * w[i];
    return sum;
}

/* out[r * row + n * column] = the product of row r of x and row n of the weights, times scale[n] * step, plus bias[n]
   (which may be NULL), after ReLU; as float, or quantized to 0..255 if `steps` is not NULL. */
void k_int8_product(long rows, long count, long depth, const int16_t *x, const int8_t *weight, const float *scale,
                    const float *bias, float step, int relu, float *out, uint8_t *steps, float out_step,
                    int out_zero, long row, long column)
{
    for (long r = 0; r < rows; r++, x += depth)
        for (long n = 0; n < count; n += 4) {
            const long some = count - n < 4 ? count - n : 4;
            int32_t sums[4] = {0};
            if (some == 4)
                k_four_sums(depth, x, weight + n * depth, sums);
            else
                for (long i = 0; i < some; i++)
                    sums[i] = k_one_sum(depth, x, weight + (n + i) * depth);
            for (long i = 0; i < some; i++) {
                float y = (float)sums[i] * (scale[n + i] * step);
                if (bias)
                    y += bias[n + i];
                if (relu)
                    y = k_maximumf(y, 0.0f);
                if (steps)
                    steps[r * row + (n + i) * column] = k_to_steps(y, out_step, (float)out_zero);
                else
                    out[r * row + (n + i) * column] = y;
            }
        }
}
