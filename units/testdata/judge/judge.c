/* Answers questions about systemd's parsers by calling the installed
 * libsystemd-shared, whose functions have no header: the prototypes below are
 * written from their documentation and use.
 *
 * Input: records of one byte KIND, four bytes LENGTH (little endian), LENGTH
 * bytes. Output: for each record four bytes LENGTH and as many bytes of text,
 * "no" for what is refused. */
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <locale.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef int (*callback)(const char *unit, const char *filename, unsigned line, const char *section,
                        unsigned section_line, const char *lvalue, int ltype, const char *rvalue,
                        void *data, void *userdata);
typedef int (*lookup)(const void *table, const char *section, const char *lvalue, callback *func,
                      int *ltype, void **data, void *userdata);

int config_parse(const char *unit, const char *filename, FILE *f, const char *sections, lookup look,
                 const void *table, int flags, void *userdata, struct stat *ret);
int parse_boolean(const char *s);
int parse_sec(const char *s, uint64_t *usec);
int parse_size(const char *s, uint64_t base, uint64_t *size);
int parse_mtu(int family, const char *s, uint32_t *mtu);
int safe_atou_full(const char *s, unsigned base, unsigned *v);
int strverscmp_improved(const char *a, const char *b);
void *condition_new(int type, const char *param, bool trigger, bool negate);
void *condition_free(void *c);
int condition_test(void *c, char **env);
int condition_type_from_string(const char *s);

static char *out;
static size_t out_len;
static FILE *text;

static void quoted(const char *s) {
        for (; *s; s++)
                if (*s == '\\' || (unsigned char) *s < ' ')
                        fprintf(text, "\\%02x", (unsigned char) *s);
                else
                        fputc(*s, text);
}

static int assignment(const char *unit, const char *filename, unsigned line, const char *section,
                      unsigned section_line, const char *lvalue, int ltype, const char *rvalue,
                      void *data, void *userdata) {
        if (!section)
                return 0; /* before the first header: networkd ignores it */
        quoted(section);
        fputc('\n', text);
        quoted(lvalue);
        fputc('\n', text);
        quoted(rvalue);
        fputc('\n', text);
        return 0;
}

static int any(const void *table, const char *section, const char *lvalue, callback *func, int *ltype,
               void **data, void *userdata) {
        *func = assignment;
        *ltype = 0;
        *data = userdata;
        return 1;
}

static void answer(char kind, char *s, size_t n) {
        uint64_t v;
        uint32_t mtu;
        unsigned u;
        int r;

        switch (kind) {
        case 'L': { /* the assignments of a file */
                FILE *f = n ? fmemopen(s, n, "r") : fopen("/dev/null", "r");
                if (!f)
                        exit(3);
                r = config_parse(NULL, "x", f, NULL, any, NULL, 0, NULL, NULL);
                fclose(f);
                if (r < 0) {
                        fclose(text);
                        free(out);
                        text = open_memstream(&out, &out_len);
                        fputs("no", text);
                }
                return;
        }
        case 'B':
                r = parse_boolean(s);
                fputs(r < 0 ? "no" : r ? "1" : "0", text);
                return;
        case 'T':
                if (parse_sec(s, &v) < 0)
                        fputs("no", text);
                else
                        fprintf(text, "%" PRIu64, v);
                return;
        case 'S':
                if (parse_size(s, 1024, &v) < 0)
                        fputs("no", text);
                else
                        fprintf(text, "%" PRIu64, v);
                return;
        case 'M':
                if (parse_mtu(0, s, &mtu) < 0)
                        fputs("no", text);
                else
                        fprintf(text, "%" PRIu32, mtu);
                return;
        case 'U':
                if (safe_atou_full(s, 0, &u) < 0)
                        fputs("no", text);
                else
                        fprintf(text, "%u", u);
                return;
        case 'V': /* two versions */
                r = strverscmp_improved(s, s + strlen(s) + 1);
                fputs(r < 0 ? "-1" : r > 0 ? "1" : "0", text);
                return;
        case 'G': /* a pattern and a text */
                fputs(fnmatch(s, s + strlen(s) + 1, 0) == 0 ? "1" : "0", text);
                return;
        case 'K': { /* a kernel command line and a word of it */
                void *c;
                setenv("SYSTEMD_PROC_CMDLINE", s, 1);
                c = condition_new(condition_type_from_string("ConditionKernelCommandLine"), s + strlen(s) + 1, false, false);
                r = condition_test(c, NULL);
                condition_free(c);
                fputs(r < 0 ? "no" : r ? "1" : "0", text);
                return;
        }
        case 'R': { /* a comparison with the kernel's release */
                void *c = condition_new(condition_type_from_string("ConditionKernelVersion"), s, false, false);
                r = condition_test(c, NULL);
                condition_free(c);
                fputs(r < 0 ? "no" : r ? "1" : "0", text);
                return;
        }
        case 'A': { /* an architecture */
                void *c = condition_new(condition_type_from_string("ConditionArchitecture"), s, false, false);
                r = condition_test(c, NULL);
                condition_free(c);
                fputs(r < 0 ? "no" : r ? "1" : "0", text);
                return;
        }
        case 'H': { /* a host name */
                void *c = condition_new(condition_type_from_string("ConditionHost"), s, false, false);
                r = condition_test(c, NULL);
                condition_free(c);
                fputs(r < 0 ? "no" : r ? "1" : "0", text);
                return;
        }
        }
        exit(4);
}

static uint32_t le(const unsigned char *b) {
        return b[0] | b[1] << 8 | b[2] << 16 | (uint32_t) b[3] << 24;
}

int main(void) {
        unsigned char head[5], len[4];

        if (!setlocale(LC_ALL, "C.UTF-8"))
                return 2;
        while (fread(head, 1, 5, stdin) == 5) {
                uint32_t n = le(head + 1);
                char *s = malloc(n + 2);
                if (!s || fread(s, 1, n, stdin) != n)
                        return 5;
                s[n] = s[n + 1] = 0;
                text = open_memstream(&out, &out_len);
                answer(head[0], s, n);
                fclose(text);
                len[0] = out_len, len[1] = out_len >> 8, len[2] = out_len >> 16, len[3] = out_len >> 24;
                fwrite(len, 1, 4, stdout);
                fwrite(out, 1, out_len, stdout);
                free(out);
                free(s);
        }
        return fflush(stdout) ? 6 : 0;
}
