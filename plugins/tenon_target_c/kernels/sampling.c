/* Reads at the places of a grid: `weights` and `places` are [n][taps][points], `x` is [n][channels][cells], `grad`
   [n][channels][points]. A place below 0 stands for none. */
#include <math.h>

/* The coordinate u, clipped or reflected into 0..size - 1: `padding` is 0 zeros, 1 border, 2 reflection. */
static float k_folded(float u, float size, int padding, int align)
{
    if (padding == 2) {
        const float low = align ? 0.0f : -0.5f, span = align ? size - 1.0f : size;
        const float z = fabsf(u - low), flips = span > 0.0f ? floorf(z / span) : 0.0f;
        const float extra = z - flips * span;
        if (!(span > 0.0f))
            return 0.0f;
        u = (flips - 2.0f * floorf(flips / 2.0f) != 0.0f ? span - extra : extra) + low;
    }
    if (padding != 0)
        u = u <= 0.0f ? 0.0f : (u >= size - 1.0f ? size - 1.0f : u);
    return u;
}

/* Places in an image of sizes[0..rank - 1] from grid[n][points][rank], the last axis first: `taps` along each axis
   (1 nearest, 2 linear, 4 cubic). */
void k_grid_places(long n, long points, long rank, const long *sizes, long taps, int padding, int align,
                   const float *grid, int64_t *places)
{
    long combinations = 1;
    for (long a = 0; a < rank; a++)
        combinations *= taps;
    for (long i = 0; i < n; i++, grid += points * rank)
        for (long c = 0; c < combinations; c++)
            for (long p = 0; p < points; p++) {
                int64_t place = 0;
                long rest = combinations;
                for (long a = 0; a < rank && place >= 0; a++) {
                    const float size = (float)sizes[a], g = grid[p * rank + rank - 1 - a] + 1.0f;
                    float u = align ? g * ((size - 1.0f) / 2.0f) : g * (size / 2.0f) - 0.5f;
                    rest /= taps;
                    if (taps != 4)
                        u = k_folded(u, size, padding, align);
                    u = taps == 1 ? rintf(u) : floorf(u) + (float)(c / rest % taps - (taps == 4));
                    if (taps == 4)
                        u = k_folded(u, size, padding, align);
                    place = u >= 0.0f && u <= size - 1.0f ? place * sizes[a] + (int64_t)u : -1;
                }
                *places++ = place;
            }
}

void k_tap_sum(long n, long channels, long cells, long taps, long points, const float *x, const float *weights,
               const int64_t *places, float *out)
{
    for (long i = 0; i < n; i++, weights += taps * points, places += taps * points)
        for (long c = 0; c < channels; c++, x += cells, out += points) {
            for (long p = 0; p < points; p++)
                out[p] = 0.0f;
            for (long t = 0; t < taps; t++)
                for (long p = 0; p < points; p++) {
                    const int64_t at = places[t * points + p];
                    if (at >= 0 && at < cells)
                        out[p] += weights[t * points + p] * x[at];
                }
        }
}

/* The transpose of k_tap_sum for x. */
void k_tap_spread(long n, long channels, long cells, long taps, long points, const float *grad, const float *weights,
                  const int64_t *places, float *out)
{
    for (long i = 0; i < n; i++, weights += taps * points, places += taps * points)
        for (long c = 0; c < channels; c++, grad += points, out += cells) {
            for (long j = 0; j < cells; j++)
                out[j] = 0.0f;
            for (long t = 0; t < taps; t++)
                for (long p = 0; p < points; p++) {
                    const int64_t at = places[t * points + p];
                    if (at >= 0 && at < cells)
                        out[at] += weights[t * points + p] * grad[p];
                }
        }
}

/* The gradient of k_tap_sum for the weights. */
void k_tap_dot(long n, long channels, long cells, long taps, long points, const float *grad, const float *x,
               const int64_t *places, float *out)
{
    for (long i = 0; i < n; i++, grad += channels * points, x += channels * cells)
        for (long t = 0; t < taps; t++)
            for (long p = 0; p < points; p++) {
                const int64_t at = *places++;
                float sum = 0.0f;
                for (long c = 0; c < channels && at >= 0 && at < cells; c++)
                    sum += grad[c * points + p] * x[c * cells + at];
                *out++ = sum;
            }
}
