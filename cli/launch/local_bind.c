/* cli/launch/local_bind.c - keeps the ports of mpirun on the loopback interface, as bin/elapse-local.so.
 *
 * On one machine nobody connects to mpirun from another one, but Open MPI (4.1, 5.0) has an option that
 * limits where its ranks listen, not where mpirun does: it binds to all interfaces. launch.c therefore
 * puts this library in front of mpirun's others (LD_PRELOAD). A rank is left alone. */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Put the loopback address of its family in place of "all interfaces". Returns whether it was that. */
static int make_local(union address *to, socklen_t length)
{
    if (to->any.sa_family == AF_INET && length >= sizeof to->v4 &&
        to->v4.sin_addr.s_addr == htonl(INADDR_ANY)) {
        to->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return 1;
    }
    if (to->any.sa_family == AF_INET6 && length >= sizeof to->v6 &&
        IN6_IS_ADDR_UNSPECIFIED(&to->v6.sin6_addr)) {
        to->v6.sin6_addr = in6addr_loopback;
        return 1;
    }
    return 0;
}

__attribute__((visibility("default"))) int bind(int fd, const struct sockaddr *address,
                                                socklen_t length)
{
    static int (*real)(int, const struct sockaddr *, socklen_t);
    union address local = {0};
    if (!real)
        real = __extension__(int (*)(int, const struct sockaddr *, socklen_t))
            dlsym(RTLD_NEXT, "bind");
    if (strcmp(program_invocation_short_name, "elapse-exec") != 0 && address &&
        length >= sizeof local.v4 && length <= sizeof local) {
        memcpy(&local, address, length);
        if (make_local(&local, length) && real(fd, &local.any, length) == 0)
            return 0; /* a machine may have no loopback address of that family */
    }
    return real(fd, address, length);
}
