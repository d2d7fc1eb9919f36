/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* Add rows of n numbers to rows of a table: out[places[i]] += x[i]. */
void k_add_rows_$(long count, long n, const T *x, const int64_t *places, T *out)
{
    for (long i = 0; i < count; i++, x += n) {
        T *row = out + places[i] * n;
        for (long j = 0; j < n; j++)
            row[j] = k_add_$(row[j], x[j]);
    }
}
