/* Pack the filters weight[groups][m][k] into panels of rows, group by group. */
void k_pack_filters(long groups, long m, long k, const float *weight, long row, long column, long group,
                    float *panels)
{
    for (long i = 0; i < groups; i++)
        k_pack_rows(m, k, weight + i * group, row, column, panels + i * m * k);
}
