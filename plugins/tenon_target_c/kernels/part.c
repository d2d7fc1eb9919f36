/* A part of an image: from the first index of each axis up to, but without, the last. */
struct part {
    long first[3], last[3];
};

/* Part `i` of those that divide the sizes g[1..3] into g[4..6] parts, which may overlap. */
static inline struct part k_part(const long *g, long i)
{
    const long at[3] = {i / (g[5] * g[6]), i / g[6] % g[5], i % g[6]};
    struct part p;
    for (int a = 0; a < 3; a++) {
        p.first[a] = at[a] * g[1 + a] / g[4 + a];
        p.last[a] = ((at[a] + 1) * g[1 + a] + g[4 + a] - 1) / g[4 + a];
    }
    return p;
}

/* The number of its elements. */
static inline long k_part_size(const struct part *p)
{
    return (p->last[0] - p->first[0]) * (p->last[1] - p->first[1]) * (p->last[2] - p->first[2]);
}
