/* For LD_PRELOAD: no library is unloaded, so LeakSanitizer can name the one that a leak is in. */
int dlclose(void *handle);

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
