/* Flat indices over several indexed axes, axis by axis: `places` = places * n + index. Returns 1 if an index is
   out of range of its axis; negative ones count from the end. */
int k_join_index(long count, long n, const int64_t *index, int64_t *places)
{
    for (long i = 0; i < count; i++) {
        const int64_t p = index[i] < 0 ? index[i] + n : index[i];
        if (p < 0 || p >= n)
            return 1;
        places[i] = places[i] * n + p;
    }
    return 0;
}
