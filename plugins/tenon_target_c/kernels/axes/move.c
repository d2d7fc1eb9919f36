/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* Elements at the indices in a table; -1 stands for zero. */
void k_move_$(long n, const T *x, const int32_t *table, T *out)
{
    for (long i = 0; i < n; i++)
        out[i] = table[i] < 0 ? 0 : x[table[i]];
}
