/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* The gradients of moves: out[table[i]] += x[i]; -1 stands for no element. */
void k_move_back_$(long count, long n, const T *x, const int32_t *table, T *out)
{
    for (long i = 0; i < n; i++)
        out[i] = 0;
    for (long i = 0; i < count; i++)
        if (table[i] >= 0)
            out[table[i]] = k_add_$(out[table[i]], x[i]);
}
