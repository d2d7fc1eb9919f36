/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* Each of count matrices [rows, columns] with zeros above the diagonal k, or below it if upper. */
void k_triangle_$(long count, long rows, long columns, long k, int upper, const T *x, T *out)
{
    for (long r = 0; r < count * rows; r++, x += columns, out += columns)
        for (long j = 0; j < columns; j++) {
            const long above = j - r % rows - k;
            out[j] = (upper ? above >= 0 : above <= 0) ? x[j] : 0;
        }
}
