
const char *const model_number_names[MODEL_NUMBERS + 1] = {@number_names@NULL};
double model_numbers[MODEL_NUMBERS + 1] = {@number_values@0};

int model_save(const char *path)
{
    unsigned char header[24];
    uint64_t size = 0, sum = checksum_of_parts();
    FILE *file;
    int complete;
    if (!loaded)
        return fail(MODEL_NOT_LOADED);
    file = path ? fopen(path, "wb") : NULL;
    if (!file)
        return fail(MODEL_NO_FILE);
    for (size_t i = 0; parts[i].data; i++)
        size += parts[i].size;
    memcpy(header, magic, 8);
    memcpy(header + 8, &size, 8);
    memcpy(header + 16, &sum, 8);
    complete = fwrite(header, 1, sizeof header, file) == sizeof header;
    for (size_t i = 0; complete && parts[i].data; i++)
        complete = fwrite(parts[i].data, 1, parts[i].size, file) == parts[i].size;
    complete = fclose(file) == 0 && complete;
    return complete ? MODEL_OK : fail(MODEL_NO_FILE);
}
