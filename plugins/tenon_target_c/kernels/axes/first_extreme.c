/* For T = f32 f64 i64 i32 i16 i8 u8. */
/* The index of the first maximum, or minimum, along the middle axis of x[outer][n][inner]. */
static inline void k_first_extreme_$(int largest, long outer, long n, long inner, const T *x, int64_t *out)
{
    for (long o = 0; o < outer; o++, x += n * inner)
        for (long j = 0; j < inner; j++) {
            T best = n > 0 ? x[j] : 0;
            int64_t index = 0;
            for (long i = 1; i < n; i++) {
                const T v = x[i * inner + j];
                if ((largest ? v > best : v < best) || (k_nan_$(v) && !k_nan_$(best))) {
                    best = v;
                    index = i;
                }
            }
            *out++ = index;
        }
}

void k_argmax_$(long outer, long n, long inner, const T *x, int64_t *out)
{
    k_first_extreme_$(1, outer, n, inner, x, out);
}

void k_argmin_$(long outer, long n, long inner, const T *x, int64_t *out)
{
    k_first_extreme_$(0, outer, n, inner, x, out);
}
