/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* Elements moved cyclically by shift along the middle axis of [rows, n, width]. */
void k_roll_$(long rows, long n, long width, long shift, const T *x, T *out)
{
    const long by = n ? (shift % n + n) % n : 0;
    for (long r = 0; r < rows; r++, x += n * width, out += n * width)
        for (long i = 0; i < n * width; i++)
            out[i] = x[i < by * width ? i + (n - by) * width : i - by * width];
}
