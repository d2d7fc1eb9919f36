/* For T = f32 f64. */
/* Grid sampling: `weights` and `places` (flat indices into x) are [n][taps][points], `x` is [n][channels][cells],
   `grad` [n][channels][points]. An index below 0 stands for no element. */
#include <math.h>

/* The coordinate u, clipped or reflected into 0..size - 1: `padding` is 0 zeros, 1 border, 2 reflection. */
static T k_folded_$(T u, T size, int padding, int align)
{
    if (padding == 2) {
        const T low = align ? 0 : -(T)0.5, span = align ? size - 1 : size;
        const T z = k_fabs_$(u - low), flips = span > 0 ? k_floor_$(z / span) : 0;
        const T extra = z - flips * span;
        if (!(span > 0))
            return 0;
        u = (flips - 2 * k_floor_$(flips / 2) != 0 ? span - extra : extra) + low;
    }
    if (padding != 0)
        u = u <= 0 ? 0 : (u >= size - 1 ? size - 1 : u);
    return u;
}

/* Flat indices into an image of sizes[0..rank - 1] from grid[n][points][rank], the last axis first: `taps` along
   each axis (1 nearest, 2 linear, 4 cubic). */
void k_grid_places_$(long n, long points, long rank, const long *sizes, long taps, int padding, int align,
                     const T *grid, int64_t *places)
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
                    const T size = (T)sizes[a], g = grid[p * rank + rank - 1 - a] + 1;
                    T u = align ? g * ((size - 1) / 2) : g * (size / 2) - (T)0.5;
                    rest /= taps;
                    if (taps != 4)
                        u = k_folded_$(u, size, padding, align);
                    u = taps == 1 ? k_rint_$(u) : k_floor_$(u) + (T)(c / rest % taps - (taps == 4));
                    if (taps == 4)
                        u = k_folded_$(u, size, padding, align);
                    place = u >= 0 && u <= size - 1 ? place * sizes[a] + (int64_t)u : -1;
                }
                *places++ = place;
            }
}

void k_tap_sum_$(long n, long channels, long cells, long taps, long points, const T *x, const T *weights,
                 const int64_t *places, T *out)
{
    for (long i = 0; i < n; i++, weights += taps * points, places += taps * points)
        for (long c = 0; c < channels; c++, x += cells, out += points) {
            for (long p = 0; p < points; p++)
                out[p] = 0;
            for (long t = 0; t < taps; t++)
                for (long p = 0; p < points; p++) {
                    const int64_t at = places[t * points + p];
                    if (at >= 0 && at < cells)
                        out[p] += weights[t * points + p] * x[at];
                }
        }
}

/* The gradient of k_tap_sum for x. */
void k_tap_spread_$(long n, long channels, long cells, long taps, long points, const T *grad, const T *weights,
                    const int64_t *places, T *out)
{
    for (long i = 0; i < n; i++, weights += taps * points, places += taps * points)
        for (long c = 0; c < channels; c++, grad += points, out += cells) {
            for (long j = 0; j < cells; j++)
                out[j] = 0;
            for (long t = 0; t < taps; t++)
                for (long p = 0; p < points; p++) {
                    const int64_t at = places[t * points + p];
                    if (at >= 0 && at < cells)
                        out[at] += weights[t * points + p] * grad[p];
                }
        }
}

/* The gradient of k_tap_sum for the weights. */
void k_tap_dot_$(long n, long channels, long cells, long taps, long points, const T *grad, const T *x,
                 const int64_t *places, T *out)
{
    for (long i = 0; i < n; i++, grad += channels * points, x += channels * cells)
        for (long t = 0; t < taps; t++)
            for (long p = 0; p < points; p++) {
                const int64_t at = *places++;
                T sum = 0;
                for (long c = 0; c < channels && at >= 0 && at < cells; c++)
                    sum += grad[c * points + p] * x[c * cells + at];
                *out++ = sum;
            }
}
