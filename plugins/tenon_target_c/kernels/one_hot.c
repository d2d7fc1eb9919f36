/* One-hot rows of `classes`. Returns 1 if an index is not a class. */
int k_one_hot(long count, long classes, const int64_t *index, int64_t *out)
{
    for (long i = 0; i < count; i++, out += classes) {
        for (long c = 0; c < classes; c++)
            out[c] = 0;
        if (index[i] < 0 || index[i] >= classes)
            return 1;
        out[index[i]] = 1;
    }
    return 0;
}
