/* Windows of 2 x 2 that neither overlap nor leave the images x[images][2 * height (+ 1)][width]. */
void k_max_pool_2(long images, long rows, long width, long height, long breadth, const float *x, float *out)
{
    float high[256];
    for (long n = 0; n < images; n++, x += rows * width)
        for (long h = 0; h < height; h++, out += breadth)
            for (long first = 0; first < breadth; first += 128) {
                const long some = breadth - first < 128 ? breadth - first : 128;
                const float *a = x + 2 * h * width + 2 * first, *b = a + width;
                for (long i = 0; i < 2 * some; i++)
                    high[i] = k_maximumf(a[i], b[i]);
                for (long o = 0; o < some; o++)
                    out[first + o] = k_maximumf(high[2 * o], high[2 * o + 1]);
            }
}
