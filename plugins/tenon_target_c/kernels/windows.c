/* Windows of images as columns of a matrix. The sizes `g` of a convolution are
   0 batch, 1 channels, 2-4 input sizes, 5 output channels, 6-8 output sizes, 9-11 kernel, 12-14 stride,
   15-17 padding, 18-20 dilation, 21 groups; images of fewer axes have leading sizes of 1. */
#include <string.h>

/* Copy a few floats; most lines are too short for memcpy to pay. */
static void k_copy_line(float *to, const float *from, long count)
{
    long i = 0;
    for (; i + 8 <= count; i += 8)
        memcpy(to + i, from + i, 8 * sizeof(float));
    for (; i + 2 <= count; i += 2)
        memcpy(to + i, from + i, 2 * sizeof(float));
    if (i < count)
        to[i] = from[i];
}

/* The coordinates of an output position, and of an element of the window. */
typedef struct {
    long z, y, x;
} k_place;

static k_place k_place_of(long at, long height, long width)
{
    k_place p;
    p.x = at % width;
    at /= width;
    p.y = at % height;
    p.z = at / height;
    return p;
}

/* Write one row of the matrix, the elements of the image `x` under the element `tap` of the window, for `count`
   output positions from `from` on; zeros outside of the image. */
static void k_window_row(const long *g, const float *x, k_place tap, k_place from, long count, float *row)
{
    const long height = g[7], width = g[8], stride = g[14], left = tap.x * g[20] - g[17];
    const long shift = tap.y * g[19] - g[16];
    long low = 0, high = width, d = from.z, h = from.y, o = from.x;
    if (left < 0)
        low = stride == 1 ? -left : (-left + stride - 1) / stride;
    if ((width - 1) * stride + left >= g[4])
        high = g[4] <= left ? 0 : stride == 1 ? g[4] - left : (g[4] - 1 - left) / stride + 1;
    while (count > 0) {
        const long end = width - o < count ? width : o + count;
        const long iz = d * g[12] + tap.z * g[18] - g[15], iy = h * g[13] + shift;
        long i = o;
        if (iz >= 0 && iz < g[2] && iy >= 0 && iy < g[3]) {
            const float *line = x + (iz * g[3] + iy) * g[4];
            const long last = end < high ? end : high;
            for (; i < end && i < low; i++)
                row[i - o] = 0.0f;
            if (i < last) {
                if (stride == 1)
                    k_copy_line(row + i - o, line + i + left, last - i);
                else
                    for (long j = i; j < last; j++)
                        row[j - o] = line[j * stride + left];
                i = last;
            }
        }
        for (; i < end; i++)
            row[i - o] = 0.0f;
        row += end - o;
        count -= end - o;
        o = 0;
        if (++h == height) {
            h = 0;
            d++;
        }
    }
}

/* The same for an image that has its padding and can be read 8 floats beyond its end: lines are copied 8 floats at
   a time, and the excess is overwritten by the next line. */
static void k_padded_row(const long *g, const float *x, k_place tap, k_place from, long count, float *row)
{
    const long height = g[7], width = g[8], stride = g[14];
    long d = from.z, h = from.y, o = from.x;
    const float *line;
    x += (tap.z * g[18] * g[3] + tap.y * g[19]) * g[4] + tap.x * g[20];
    line = x + (d * g[12] * g[3] + h * g[13]) * g[4];
    while (count > 0) {
        const long steps = width - o < count ? width - o : count;
        if (stride == 1)
            for (long i = 0; i < steps; i += 8)
                memcpy(row + i, line + o + i, 8 * sizeof(float));
        else
            for (long i = 0; i < steps; i++)
                row[i] = line[(o + i) * stride];
        row += steps;
        count -= steps;
        o = 0;
        line += g[13] * g[4];
        if (++h == height) {
            h = 0;
            line = x + ++d * g[12] * g[3] * g[4];
        }
    }
}

/* The same for lines of a multiple of 8 floats, straight into panels of `rows` rows: `places` has where each 8
   positions begin in the image. */
static void k_panel_row(const float *x, const long *places, long count, float *panels, long rows)
{
    long j = 0;
    for (; j + 16 <= count; j += 16, places += 2, panels += 16 * rows) {
        memcpy(panels, x + places[0], 8 * sizeof(float));
        memcpy(panels + 8, x + places[1], 8 * sizeof(float));
    }
    if (j < count) {
        memcpy(panels, x + places[0], 8 * sizeof(float));
        memset(panels + 8, 0, 8 * sizeof(float));
    }
}

/* Copy `images` images with their padding of zeros to `out`; `wide` gets the sizes of a convolution without. */
void k_pad_images(const long *g, long images, const float *x, float *out, long *wide)
{
    memcpy(wide, g, 22 * sizeof *g);
    for (long a = 0; a < 3; a++) {
        wide[2 + a] = g[2 + a] + 2 * g[15 + a];
        wide[15 + a] = 0;
    }
    memset(out, 0, (size_t)(images * wide[2] * wide[3] * wide[4]) * sizeof *out);
    for (long i = 0; i < images; i++)
        for (long z = 0; z < g[2]; z++)
            for (long y = 0; y < g[3]; y++, x += g[4])
                k_copy_line(out + ((i * wide[2] + z + g[15]) * wide[3] + y + g[16]) * wide[4] + g[17], x, g[4]);
}

/* Write rows `first` to `first + rows` of the matrix of `x`, the images of a group, for `count` output
   positions from `start` on. With `panels` the matrix is packed in panels of 16 columns; otherwise each row is
   `stride` floats after the one before. `padded`: see k_padded_row. */
void k_window_rows(const long *g, const float *x, long first, long rows, long start, long count, float *matrix,
                   long stride, int panels, int padded)
{
    const long taps = g[9] * g[10] * g[11], image = g[2] * g[3] * g[4];
    const k_place from = k_place_of(start, g[7], g[8]);
    k_place tap = k_place_of(first % taps, g[10], g[11]);
    float row[192 + 16];
    long places[192 / 8];
    const int lines = padded && g[14] == 1 && g[8] % 8 == 0 && start % 8 == 0 && count % 8 == 0;
    for (long j = 0; lines && j < count; j += 8) {
        const k_place p = k_place_of(start + j, g[7], g[8]);
        places[j / 8] = (p.z * g[12] * g[3] + p.y * g[13]) * g[4] + p.x;
    }
    x += first / taps * image;
    for (long r = 0; r < rows; r++) {
        if (lines)
            k_panel_row(x + (tap.z * g[18] * g[3] + tap.y * g[19]) * g[4] + tap.x * g[20], places, count,
                        matrix + r * 16, rows);
        else if (padded)
            k_padded_row(g, x, tap, from, count, row);
        else
            k_window_row(g, x, tap, from, count, panels ? row : matrix + r * stride);
        if (panels && !lines) {
            for (long j = count; j % 16; j++)
                row[j] = 0.0f;
            for (long j = 0; j < count; j += 16)
                memcpy(matrix + j * rows + r * 16, row + j, 16 * sizeof(float));
        }
        if (++tap.x == g[11]) {
            tap.x = 0;
            if (++tap.y == g[10]) {
                tap.y = 0;
                if (++tap.z == g[9]) {
                    tap.z = 0;
                    x += image;
                }
            }
        }
    }
}
