/* For T = f32 f64 i32 i64. */
/* The positions at which y[rows][count] would be inserted into the sorted rows x[rows][n] (one for all if `shared`):
   before equal elements, or after them if `right`. NaN counts as largest. */
void k_searchsorted_$(long rows, long n, long count, const T *x, int shared, const T *y, int right, int64_t *out)
{
    for (long r = 0; r < rows; r++, x += shared ? 0 : n)
        for (long i = 0; i < count; i++, y++) {
            long low = 0, high = n;
            while (low < high) {
                const long middle = low + (high - low) / 2;
                const T a = x[middle], b = *y;
                const int less = a < b || (k_nan_$(b) && !k_nan_$(a)), more = b < a || (k_nan_$(a) && !k_nan_$(b));
                if (right ? !more : less)
                    low = middle + 1;
                else
                    high = middle;
            }
            *out++ = low;
        }
}
