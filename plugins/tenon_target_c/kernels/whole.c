/* Functions of integers, computed in 64 bits and rounded to fewer as NumPy does: results wrap around. Divisions by
   zero give 0; generated loops report them. */

/* Rounded down. */
int64_t k_whole_floor_divide(int64_t a, int64_t b)
{
    if (b == 0 || b == -1)
        return b ? (int64_t)(0u - (uint64_t)a) : 0;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Rounded towards zero. */
int64_t k_whole_divide(int64_t a, int64_t b)
{
    if (b == 0 || b == -1)
        return b ? (int64_t)(0u - (uint64_t)a) : 0;
    return a / b;
}

/* The remainder of floor_divide, with the sign of b. */
int64_t k_whole_remainder(int64_t a, int64_t b)
{
    const int64_t r = b == 0 || b == -1 ? 0 : a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* The remainder of a division rounded towards zero, with the sign of a. */
int64_t k_whole_fmod(int64_t a, int64_t b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}

int64_t k_whole_left_shift(int64_t a, int64_t b)
{
    return b >= 0 && b < 64 ? (int64_t)((uint64_t)a << b) : 0;
}

int64_t k_whole_right_shift(int64_t a, int64_t b)
{
    if (b < 0 || b >= 64)
        return a < 0 ? -1 : 0;
    return a < 0 ? ~(~a >> b) : a >> b;
}

/* Negative powers are rounded towards zero. */
int64_t k_whole_power(int64_t a, int64_t b)
{
    uint64_t result = 1, base = (uint64_t)a;
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    for (; b > 0; b >>= 1, base *= base)
        if (b & 1)
            result *= base;
    return (int64_t)result;
}

int64_t k_whole_gcd(int64_t a, int64_t b)
{
    uint64_t x = a < 0 ? 0u - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0u - (uint64_t)b : (uint64_t)b;
    while (y) {
        const uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return (int64_t)x;
}

int64_t k_whole_lcm(int64_t a, int64_t b)
{
    const int64_t divisor = k_whole_gcd(a, b);
    const uint64_t x = a < 0 ? 0u - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0u - (uint64_t)b : (uint64_t)b;
    return divisor ? (int64_t)(x / (uint64_t)divisor * y) : 0;
}
