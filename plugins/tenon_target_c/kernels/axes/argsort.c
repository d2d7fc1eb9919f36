/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* Whether a comes before b; NaN counts as largest. */
static int k_before_$(T a, T b, int descending)
{
    const int up = a < b || (k_nan_$(b) && !k_nan_$(a)), down = a > b || (k_nan_$(a) && !k_nan_$(b));
    return descending ? down : up;
}

/* The indices that sort each row of x[rows][n], from position `start` on: out[rows][count]. A stable merge sort of
   runs of 1, 2, 4, ... elements. `order` has 2 * n integers. */
void k_argsort_$(long rows, long n, const T *x, int descending, long start, long count, int64_t *out,
                 int64_t *order)
{
    for (long r = 0; r < rows; r++, x += n) {
        int64_t *from = order, *to = order + n;
        for (long i = 0; i < n; i++)
            from[i] = i;
        for (long piece = 1; piece < n; piece *= 2) {
            int64_t *const swap = from;
            for (long low = 0; low < n; low += 2 * piece) {
                const long middle = low + piece < n ? low + piece : n, high = middle + piece < n ? middle + piece : n;
                long a = low, b = middle;
                for (long i = low; i < high; i++)
                    to[i] = a < middle && (b >= high || !k_before_$(x[from[b]], x[from[a]], descending)) ? from[a++]
                                                                                                      : from[b++];
            }
            from = to;
            to = swap;
        }
        for (long i = 0; i < count; i++)
            *out++ = from[start + i];
    }
}
