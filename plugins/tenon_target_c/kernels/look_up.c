/* Rows of a table: out[i] = x[index[i]] for rows of `bytes`. Returns 1 if an index is outside of the table. */
#include <string.h>

int k_look_up(long count, long rows, long bytes, const void *x, const int64_t *index, void *out)
{
    const char *const table = (const char *)x;
    char *to = (char *)out;
    for (long i = 0; i < count; i++, to += bytes) {
        if (index[i] < 0 || index[i] >= rows)
            return 1;
        memcpy(to, table + index[i] * bytes, (size_t)bytes);
    }
    return 0;
}
