/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* out[o][index[o][i][j]][j] is combined with y[o][i][j]: `how` is 0 write, 1 add, 2 multiply, 3 maximum,
   4 minimum. Returns 1 if an index is out of range. */
int k_scatter_$(long outer, long n, long inner, long count, const T *y, const int64_t *index, int how, T *out)
{
    for (long o = 0; o < outer; o++, out += n * inner)
        for (long i = 0; i < count; i++)
            for (long j = 0; j < inner; j++, index++, y++) {
                T *to;
                if (*index < 0 || *index >= n)
                    return 1;
                to = out + *index * inner + j;
                if (how == 0 || (how == 3 && (*y > *to || k_nan_$(*y))) || (how == 4 && (*y < *to || k_nan_$(*y))))
                    *to = *y;
                else if (how == 1)
                    *to = k_add_$(*to, *y);
                else if (how == 2)
                    *to = k_multiply_$(*to, *y);
            }
    return 0;
}
