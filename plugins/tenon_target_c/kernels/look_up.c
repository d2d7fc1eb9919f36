/* Rows of a table: out[i] = x[index[i]] for rows of n floats; a negative index counts from the end if `wrap`.
   Returns 1 if an index is outside of the table. */
#include <string.h>

int k_look_up_f32(long count, long rows, long n, const float *x, const int64_t *index, int wrap, float *out)
{
    for (long i = 0; i < count; i++) {
        const int64_t r = index[i] < 0 && wrap ? index[i] + rows : index[i];
        if (r < 0 || r >= rows)
            return 1;
        memcpy(out + i * n, x + r * n, (size_t)n * sizeof(float));
    }
    return 0;
}

int k_look_up_i64(long count, long rows, long n, const int64_t *x, const int64_t *index, int wrap, int64_t *out)
{
    for (long i = 0; i < count; i++) {
        const int64_t r = index[i] < 0 && wrap ? index[i] + rows : index[i];
        if (r < 0 || r >= rows)
            return 1;
        memcpy(out + i * n, x + r * n, (size_t)n * sizeof(int64_t));
    }
    return 0;
}
