/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* Pooling: `g` has 0 images, 1-3 input sizes, 4-6 output sizes, 7-9 kernel, 10-12 stride, 13-15 padding,
   16-18 dilation. */
static inline T k_larger_$(T a, T b) { return (a > b) | k_nan_$(a) ? a : b; }

void k_max_pool_$(const long *g, const T *x, T *out)
{
    const long image = g[1] * g[2] * g[3];
    for (long n = 0; n < g[0]; n++, x += image)
        for (long d = 0; d < g[4]; d++)
            for (long h = 0; h < g[5]; h++, out += g[6]) {
                for (long o = 0; o < g[6]; o++)
                    out[o] = k_least_$;
                for (long a = 0; a < g[7]; a++)
                    for (long b = 0; b < g[8]; b++) {
                        const long iz = d * g[10] + a * g[16] - g[13], iy = h * g[11] + b * g[17] - g[14];
                        if (iz < 0 || iz >= g[1] || iy < 0 || iy >= g[2])
                            continue;
                        for (long c = 0; c < g[9]; c++) {
                            const T *line = x + (iz * g[2] + iy) * g[3];
                            const long left = c * g[18] - g[15], stride = g[12];
                            long first = left < 0 ? (-left + stride - 1) / stride : 0, last = g[6];
                            if ((last - 1) * stride + left >= g[3])
                                last = g[3] > left ? (g[3] - 1 - left) / stride + 1 : 0;
                            for (long o = first; o < last; o++)
                                out[o] = k_larger_$(out[o], line[o * stride + left]);
                        }
                    }
            }
}
