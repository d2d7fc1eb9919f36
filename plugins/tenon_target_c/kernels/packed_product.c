/* c[m][n] = a b, with a in panels of rows and b in panels of columns, both of depth k. */
void k_packed_product(long m, long n, long k, const float *a, const float *b, float *c)
{
    const long whole = m / 6 * 6, rest = m - whole;
    long p = 0, depth = k_depth(k);
    do {
        depth = k - p < depth ? k - p : depth;
        const int last = p + depth == k;
        if (whole)
            k_block(whole, n, depth, a + p * 6, k, b + p * 16, k, c, n, p == 0, last, NULL, NULL, NULL, 0);
        if (rest)
            k_block(rest, n, depth, a + whole * k + p * rest, k, b + p * 16, k, c + whole * n, n, p == 0, last,
                    NULL, NULL, NULL, 0);
        p += depth;
    } while (p < k);
}
