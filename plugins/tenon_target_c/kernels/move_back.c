/* The transposes of the moves: out[table[i]] += x[i], for places from 0; -1 stands for none. */
void k_move_back(long count, long n, const float *x, const int32_t *table, float *out)
{
    for (long i = 0; i < n; i++)
        out[i] = 0.0f;
    for (long i = 0; i < count; i++)
        if (table[i] >= 0)
            out[table[i]] += x[i];
}
