/* Elements at the places of a table; -1 stands for zero. */
void k_move_4(long n, const float *x, const int32_t *table, float *out)
{
    for (long i = 0; i < n; i++)
        out[i] = table[i] < 0 ? 0.0f : x[table[i]];
}

void k_move_8(long n, const int64_t *x, const int32_t *table, int64_t *out)
{
    for (long i = 0; i < n; i++)
        out[i] = table[i] < 0 ? 0 : x[table[i]];
}

void k_move_1(long n, const uint8_t *x, const int32_t *table, uint8_t *out)
{
    for (long i = 0; i < n; i++)
        out[i] = table[i] < 0 ? 0 : x[table[i]];
}
