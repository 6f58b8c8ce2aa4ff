/* PTX to what cudasim_ptx_run.cpp runs, and the runtime's side of nvcc's launches: a module is
 * registered when the library is loaded, its text read at the first launch. */
#include "tests/cudasim/cudasim_ptx.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include <map>

#include "tests/cudasim/cudasim_internal.h"

namespace
{

std::vector<std::string> files = {"?"}; /* of all modules; line 0 of the first: not known */

struct reg {
    char kind; /* i, l, p */
    int64_t place;
};

struct scope {
    std::map<std::string, reg> names;
    std::map<std::string, char> families; /* "%r" of %r<19> */
};

struct reader {
    const char *at;
    std::map<std::string, int64_t> shared; /* of the module: its address */
    std::map<int, int> file_of;            /* its number in the module -> in files */
    struct ptx_kernel *k;
    std::vector<scope> scopes;
    std::map<std::string, int64_t> symbols; /* of the kernel: parameters, shared */
    std::map<std::string, int> labels;
    std::vector<std::pair<int, std::string>> jumps;
    std::map<std::pair<char, uint64_t>, uint32_t> constants;
    uint32_t line, shared_bytes;
};

/* --- text ------------------------------------------------------------------------------------ */

std::string trimmed(const std::string &s)
{
    const size_t begin = s.find_first_not_of(" \t\r\n"), end = s.find_last_not_of(" \t\r\n");
    return begin == std::string::npos ? "" : s.substr(begin, end - begin + 1);
}

bool starts(const std::string &s, const char *with)
{
    return s.compare(0, strlen(with), with) == 0;
}

void skip_space(reader *r)
{
    for (;;) {
        while (*r->at && strchr(" \t\r\n", *r->at))
            r->at++;
        if (r->at[0] != '/' || r->at[1] != '/')
            return;
        while (*r->at && *r->at != '\n')
            r->at++;
    }
}

/* Up to one of the ends, which is passed over. Comments are blanks. */
std::string take_until(reader *r, const char *ends)
{
    std::string s;
    while (*r->at && !strchr(ends, *r->at)) {
        if (r->at[0] == '/' && r->at[1] == '/')
            while (*r->at && *r->at != '\n')
                r->at++;
        else
            s += *r->at++;
    }
    if (*r->at)
        r->at++;
    return trimmed(s);
}

/* Whole line of a directive that has no semicolon. */
std::string take_line(reader *r)
{
    return take_until(r, "\n");
}

/* By commas that stand in no brackets. */
std::vector<std::string> split(const std::string &s)
{
    std::vector<std::string> parts;
    std::string one;
    int depth = 0;
    for (const char c : s) {
        depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
        if (c == ',' && depth == 0) {
            parts.push_back(trimmed(one));
            one.clear();
        } else {
            one += c;
        }
    }
    if (!trimmed(one).empty())
        parts.push_back(trimmed(one));
    return parts;
}

void not_known(reader *r, const std::string &why)
{
    if (r->k->unknown.empty())
        r->k->unknown = why + " at " + cudasim_ptx_line(r->line);
}

/* Bytes of .u64, .b32 and so on; 0: none of them. */
int type_bytes(const std::string &type)
{
    const size_t digits = type.find_first_of("0123456789");
    return digits == std::string::npos ? 0 : atoi(type.c_str() + digits) / 8;
}

char kind_of_type(const std::string &type)
{
    return type == ".pred" ? 'p' : type_bytes(type) == 8 ? 'l' : 'i';
}

/* --- registers ------------------------------------------------------------------------------- */

uint32_t new_place(reader *r, char kind)
{
    const uint32_t place = r->k->register_bytes;
    r->k->register_bytes += kind == 'l' ? 256 : kind == 'i' ? 128 : 64;
    return place;
}

const char *const special_names[PTX_SPECIALS] = {
    "%tid.x",  "%tid.y",  "%tid.z",    "%ctaid.x",  "%ctaid.y",  "%ctaid.z", "%ntid.x",
    "%ntid.y", "%ntid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid",
};

/* kind becomes its own. -1: not declared. */
int64_t place_of_register(reader *r, const std::string &name, char *kind)
{
    for (int i = 0; i < PTX_SPECIALS; i++)
        if (name == special_names[i]) {
            if (r->k->special[i] < 0)
                r->k->special[i] = new_place(r, 'i');
            *kind = 'i';
            return r->k->special[i];
        }
    for (size_t i = r->scopes.size(); i-- > 0;) {
        scope *s = &r->scopes[i];
        const auto known = s->names.find(name);
        if (known == s->names.end()) {
            const auto family = s->families.find(name.substr(0, name.find_first_of("0123456789")));
            if (family == s->families.end())
                continue;
            s->names[name] = {family->second, -1};
        }
        reg *one = &s->names[name];
        if (one->place < 0)
            one->place = new_place(r, one->kind);
        *kind = one->kind;
        return one->place;
    }
    return -1;
}

uint32_t place_of_constant(reader *r, char kind, uint64_t value)
{
    const auto key = std::make_pair(kind, value);
    if (!r->constants.count(key)) {
        r->constants[key] = new_place(r, kind);
        r->k->constants.push_back({r->constants[key], kind, value});
    }
    return r->constants[key];
}

/* A number as it is written, or the address of a symbol, with +N behind it. */
bool value_of(reader *r, const std::string &text, uint64_t *value)
{
    if (starts(text, "0f") || starts(text, "0d")) {
        *value = strtoull(text.c_str() + 2, NULL, 16);
        return true;
    }
    if (text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) {
        *value = text[0] == '-' ? (uint64_t)strtoll(text.c_str(), NULL, 0)
                                : strtoull(text.c_str(), NULL, 0);
        return true;
    }
    const size_t plus = text.find('+');
    const std::string name = text.substr(0, plus);
    const auto own = r->symbols.find(name), module = r->shared.find(name);
    if (own == r->symbols.end() && module == r->shared.end())
        return false;
    *value = (uint64_t)(own != r->symbols.end() ? own->second : module->second);
    if (plus != std::string::npos)
        *value += (uint64_t)strtoll(text.c_str() + plus + 1, NULL, 0);
    return true;
}

/* The place of an operand; `want` is i, l or p, or ? for any, which then becomes what it is. */
uint32_t place_of(reader *r, const std::string &text, char *want)
{
    char kind = *want;
    if (text == "_")
        return new_place(r, kind == '?' ? 'l' : kind);
    const int64_t place = place_of_register(r, text, &kind);
    uint64_t value = 0;
    if (place >= 0) {
        if (*want != '?' && kind != *want)
            not_known(r, "a register of another size, " + text);
        *want = kind;
        return (uint32_t)place;
    }
    if (*want == '?')
        *want = 'l';
    if (!value_of(r, text, &value))
        not_known(r, "an operand, " + text);
    return place_of_constant(r, *want, *want == 'i' ? (uint32_t)value : value);
}

/* The source of cvt may lie in a register of more bits. An instruction of ours in front takes its bits
 * from there. */
std::string narrow_source(reader *r, const std::string &text)
{
    char kind = '?';
    const uint32_t from = text[0] == '%' ? place_of(r, text, &kind) : 0;
    if (text[0] != '%' || kind != 'l')
        return text;
    const struct ptx_meaning *m = cudasim_ptx_meaning("cvt.u32.u64");
    const std::string name = text + ".low";
    struct ptx_op op = {};
    op.work = m->work;
    op.counted = PTX_MOVE;
    op.guard = op.mask_at = -1;
    op.line = r->line;
    op.text = "cvt";
    op.num_operands = 2;
    op.operand[0] = new_place(r, 'i');
    op.operand[1] = from;
    r->k->ops.push_back(op);
    r->scopes.back().names[name] = {'i', op.operand[0]};
    return name;
}

void add_operand(reader *r, struct ptx_op *op, const std::string &text, char want)
{
    if (op->num_operands == PTX_OPERANDS)
        not_known(r, std::string("so many operands of ") + op->text);
    else
        op->operand[op->num_operands++] = place_of(r, text, &want);
}

/* --- instructions ---------------------------------------------------------------------------- */

std::vector<std::string> in_braces(const std::string &text)
{
    return split(text.substr(1, text.size() - 2));
}

/* [register + N], [symbol + N]: the register is the next operand. */
void add_address(reader *r, struct ptx_op *op, const std::string &text)
{
    if (text.size() < 3 || text[0] != '[') {
        not_known(r, "an address, " + text);
        return;
    }
    const std::string inside = trimmed(text.substr(1, text.size() - 2));
    const size_t plus = inside.find('+');
    const std::string base = trimmed(inside.substr(0, plus));
    char kind = '?';
    uint64_t value = 0;
    op->offset = plus == std::string::npos ? 0 : strtoll(inside.c_str() + plus + 1, NULL, 0);
    if (base[0] != '%' && value_of(r, base, &value)) {
        op->offset += (int64_t)value;
        op->operand[op->num_operands++] = place_of_constant(r, kind = 'l', 0);
    } else {
        op->operand[op->num_operands++] = place_of(r, base, &kind);
    }
    op->wide_address = kind == 'l';
}

/* ld.SPACE.v4.TYPE and st. */
bool load_store(reader *r, struct ptx_op *op, const std::string &name,
                const std::vector<std::string> &parts)
{
    const bool store = starts(name, "st.");
    std::string rest = name.substr(3);
    if (starts(rest, "global.")) {
        op->space = PTX_SPACE_GLOBAL;
        op->counted = PTX_GLOBAL;
        rest = rest.substr(7);
        if (!store && starts(rest, "nc."))
            rest = rest.substr(3);
    } else if (starts(rest, "shared.")) {
        op->space = PTX_SPACE_SHARED;
        op->counted = PTX_SHARED;
        rest = rest.substr(7);
    } else if (starts(rest, "param.") && !store) {
        op->space = PTX_SPACE_PARAM;
        op->counted = PTX_PARAM;
        rest = rest.substr(6);
    } else {
        return false;
    }
    op->vector = 1;
    if (starts(rest, "v2.") || starts(rest, "v4.")) {
        op->vector = (uint8_t)(rest[1] - '0');
        rest = rest.substr(3);
    }
    op->bytes = (uint8_t)type_bytes(rest);
    op->is_signed = rest[0] == 's';
    if (rest.size() < 2 || !strchr("busf", rest[0]) || rest.find('.') != std::string::npos ||
        op->bytes == 0 || parts.size() != 2)
        return false;
    const std::string &list = parts[store ? 1 : 0];
    const std::vector<std::string> elements =
        list[0] == '{' ? in_braces(list) : std::vector<std::string>(1, list);
    if (elements.size() != op->vector)
        return false;
    char kind = '?';
    for (const std::string &one : elements) {
        char this_kind = kind;
        if (op->bytes < 8 && one[0] != '%')
            this_kind = 'i';
        op->operand[op->num_operands++] = place_of(r, one, &this_kind);
        kind = this_kind;
    }
    op->wide = kind == 'l';
    add_address(r, op, parts[store ? 0 : 1]);
    op->work = store ? cudasim_ptx_store_lanes : cudasim_ptx_load_lanes;
    return true;
}

/* mov packs and unpacks; that has names of its own: mov.b32.split2 of mov.b32 {a, b}, c. */
std::string with_braces(const std::string &name, const std::vector<std::string> &parts)
{
    if (!starts(name, "mov.b") || parts.size() != 2)
        return name;
    if (parts[0][0] == '{')
        return name + ".split" + std::to_string(in_braces(parts[0]).size());
    return parts[1][0] == '{' ? name + ".join" + std::to_string(in_braces(parts[1]).size()) : name;
}

void instruction(reader *r, const std::string &statement)
{
    struct ptx_op op = {};
    std::string s = statement;
    op.guard = -1;
    op.line = r->line;
    op.mask_at = -1;
    if (s[0] == '@') {
        const size_t end = s.find_first_of(" \t\n");
        op.guard_not = s[1] == '!';
        char want = 'p';
        op.guard =
            (int)place_of(r, s.substr(op.guard_not ? 2 : 1, end - (op.guard_not ? 2 : 1)), &want);
        s = trimmed(s.substr(end));
    }
    const size_t end = s.find_first_of(" \t\n");
    std::string name = s.substr(0, end);
    std::vector<std::string> parts = split(end == std::string::npos ? "" : s.substr(end));
    op.text = strdup(name.c_str());
    if (starts(name, "ld.") || starts(name, "st.")) {
        if (!load_store(r, &op, name, parts))
            not_known(r, "instruction " + name);
        r->k->ops.push_back(op);
        return;
    }
    if (name == "bra" || name == "bra.uni") {
        op.control = PTX_JUMP;
        op.counted = PTX_BRANCH;
        r->jumps.push_back({(int)r->k->ops.size(), parts[0]});
        r->k->ops.push_back(op);
        return;
    }
    if (name == "bar.sync" && parts[0] != "0")
        not_known(r, "barrier " + parts[0]);
    const struct ptx_meaning *m = cudasim_ptx_meaning(with_braces(name, parts));
    if (!m) {
        not_known(r, "instruction " + statement);
        return;
    }
    op.work = m->work;
    op.counted = m->counted;
    op.control = m->control;
    op.mask_at = m->mask_at;
    /* Braces and d|p are one operand behind the other. */
    std::vector<std::string> flat;
    for (const std::string &part : parts) {
        const size_t bar = part.find('|');
        if (part[0] == '{')
            for (const std::string &one : in_braces(part))
                flat.push_back(one);
        else if (bar != std::string::npos)
            flat.push_back(trimmed(part.substr(0, bar))),
                flat.push_back(trimmed(part.substr(bar + 1)));
        else
            flat.push_back(part);
    }
    if (starts(name, "shfl.") && flat.size() == 5)
        flat.insert(flat.begin() + 1, "_");
    if (flat.size() != strlen(m->operands))
        not_known(r, "operands of " + statement);
    if (starts(name, "cvt.") && flat.size() == 2 && m->operands[1] == 'i')
        flat[1] = narrow_source(r, flat[1]);
    for (size_t i = 0; i < flat.size() && m->operands[i]; i++)
        switch (m->operands[i]) {
        case 'n': /* a number of its own */
            op.offset = strtoll(flat[i].c_str(), NULL, 0);
            break;
        case 's': /* an address of shared or device memory, without an offset */
        case 'g':
            add_operand(r, &op, trimmed(flat[i].substr(1, flat[i].size() - 2)),
                        m->operands[i] == 's' ? 'i' : 'l');
            break;
        default:
            add_operand(r, &op, flat[i], m->operands[i]);
        }
    r->k->ops.push_back(op);
}

/* --- declarations ---------------------------------------------------------------------------- */

/* .reg .b32 %r<19>;  .reg .b64 %tmp, %other; */
void registers(reader *r, const std::string &statement)
{
    const size_t type_at = statement.find('.', 1),
                 type_end = statement.find_first_of(" \t", type_at);
    const char kind = kind_of_type(statement.substr(type_at, type_end - type_at));
    for (const std::string &name : split(statement.substr(type_end))) {
        const size_t count = name.find('<');
        if (count != std::string::npos)
            r->scopes.back().families[name.substr(0, count)] = kind;
        else
            r->scopes.back().names[name] = {kind, -1};
    }
}

/* ".shared .align 4 .b8 name[4096]": its address, in the static part. */
void shared_variable(reader *r, const std::string &statement, std::map<std::string, int64_t> *to)
{
    const size_t align_at = statement.find(".align"), bracket = statement.find('[');
    const uint32_t align =
        align_at == std::string::npos ? 16 : (uint32_t)atoi(statement.c_str() + align_at + 6);
    const size_t name_at = statement.find_last_of(" \t", bracket) + 1;
    const std::string name =
        statement.substr(name_at, bracket == std::string::npos ? bracket : bracket - name_at);
    uint32_t bytes =
        bracket == std::string::npos ? 8 : (uint32_t)atoi(statement.c_str() + bracket + 1);
    if (starts(statement, ".extern")) {
        (*to)[name] = -1; /* behind the static part, once that is known */
        return;
    }
    const size_t type_at = statement.find_last_of('.', name_at);
    bytes *= (uint32_t)type_bytes(statement.substr(type_at, name_at - type_at));
    r->shared_bytes = (r->shared_bytes + align - 1) / align * align;
    (*to)[name] = r->shared_bytes;
    r->shared_bytes += bytes;
}

/* ".param .align 8 .b8 name[96]", ".param .u64 .ptr .align 1 name" */
void parameter(reader *r, const std::string &text)
{
    const size_t align_at = text.find(".align"), bracket = text.find('['),
                 name_at = text.find_last_of(" \t", bracket) + 1;
    struct ptx_param one = {0, 0};
    const bool array = bracket != std::string::npos;
    const size_t type_at = text.find_first_of('.', 6),
                 type_end = text.find_first_of(" \t", type_at);
    one.bytes = array ? (uint32_t)atoi(text.c_str() + bracket + 1)
                      : (uint32_t)type_bytes(text.substr(type_at, type_end - type_at));
    const uint32_t align = array && align_at != std::string::npos
                               ? (uint32_t)atoi(text.c_str() + align_at + 6)
                           : array ? 1
                                   : one.bytes;
    one.offset = (r->k->param_bytes + align - 1) / align * align;
    r->k->param_bytes = one.offset + one.bytes;
    r->k->params.push_back(one);
    r->symbols[text.substr(name_at, array ? bracket - name_at : bracket)] = one.offset;
}

uint32_t file_of(reader *r, int number)
{
    const auto known = r->file_of.insert({number, (int)files.size()});
    if (known.second)
        files.push_back("?");
    return (uint32_t)known.first->second;
}

/* .file 1 "name", which stand behind the kernels that name them by number. */
void file(reader *r, const std::string &text)
{
    const size_t quote = text.find('"'), last = text.rfind('"');
    if (quote != std::string::npos && last > quote) {
        const std::string path = text.substr(quote + 1, last - quote - 1);
        const size_t tree = path.rfind("exec/cuda/");
        files[file_of(r, atoi(text.c_str() + 5))] =
            tree == std::string::npos ? path : path.substr(tree);
    }
}

/* .loc 1 120 5 */
void location(reader *r, const std::string &text)
{
    int number = 0, line = 0;
    if (sscanf(text.c_str(), ".loc %d %d", &number, &line) == 2 && line > 0)
        r->line = file_of(r, number) << 20 | (uint32_t)line;
}

void body(reader *r)
{
    r->scopes.assign(1, scope());
    for (;;) {
        skip_space(r);
        if (!*r->at)
            return;
        if (*r->at == '{' || *r->at == '}') {
            if (*r->at++ == '{')
                r->scopes.push_back(scope());
            else
                r->scopes.pop_back();
            if (r->scopes.empty())
                return;
            continue;
        }
        if (*r->at == '.') {
            if (strncmp(r->at, ".loc", 4) == 0 && strncmp(r->at, ".local", 6) != 0) {
                location(r, take_line(r));
                continue;
            }
            const std::string statement = take_until(r, ";");
            if (starts(statement, ".reg"))
                registers(r, statement);
            else if (starts(statement, ".shared"))
                shared_variable(r, statement, &r->symbols);
            else if (!starts(statement, ".pragma"))
                not_known(r, statement);
            continue;
        }
        const char *end = r->at;
        while (*end && !strchr(" \t\r\n:;", *end))
            end++;
        if (*end == ':' && end[1] != ':') {
            r->labels[std::string(r->at, end)] = (int)r->k->ops.size();
            r->at = end + 1;
        } else {
            instruction(r, take_until(r, ";"));
        }
    }
}

/* The symbols of extern shared memory, in the module and as constants, lie behind the static part:
 * so that part is measured first, by reading the body twice. */
void entry(reader *r, std::vector<struct ptx_kernel *> *kernels)
{
    struct ptx_kernel *k = r->k = new ptx_kernel();
    for (int64_t &place : k->special)
        place = -1;
    k->name = take_until(r, "(");
    k->name = trimmed(k->name.substr(k->name.find(".entry") + 6));
    r->symbols.clear();
    for (const std::string &one : split(take_until(r, ")")))
        parameter(r, one);
    while (*r->at && *r->at != '{')
        take_line(r), skip_space(r);
    const char *begin = r->at + (*r->at == '{');
    const std::map<std::string, int64_t> parameters = r->symbols, module = r->shared;
    const uint32_t module_bytes = r->shared_bytes;
    for (int pass = 0; pass < 2; pass++) {
        const uint32_t dynamic = (r->shared_bytes + 15) / 16 * 16;
        k->static_shared = dynamic;
        k->ops.clear();
        k->constants.clear();
        k->unknown.clear();
        k->register_bytes = 64;
        for (int64_t &place : k->special)
            place = -1;
        r->at = begin;
        r->symbols = parameters;
        r->shared = module;
        for (auto &one : r->shared)
            if (one.second < 0)
                one.second = dynamic;
        r->shared_bytes = module_bytes;
        r->labels.clear();
        r->jumps.clear();
        r->constants.clear();
        r->line = 0;
        body(r);
    }
    r->shared = module;
    r->shared_bytes = module_bytes;
    for (const auto &jump : r->jumps)
        if (r->labels.count(jump.second))
            k->ops[(size_t)jump.first].target = r->labels[jump.second];
        else
            not_known(r, "label " + jump.second);
    kernels->push_back(k);
}

} // namespace

std::string cudasim_ptx_line(uint32_t line)
{
    const uint32_t file = line >> 20;
    return line == 0 || file >= files.size() ? "?"
                                             : files[file] + ":" + std::to_string(line & 0xfffff);
}

void cudasim_ptx_load(const char *text, std::vector<struct ptx_kernel *> *kernels)
{
    reader r = {};
    r.at = text;
    for (skip_space(&r); *r.at; skip_space(&r)) {
        if (strncmp(r.at, ".file", 5) == 0) {
            file(&r, take_line(&r));
        } else if (strncmp(r.at, ".section", 8) == 0) {
            take_until(&r, "}");
        } else if (strncmp(r.at, ".version", 8) == 0 || strncmp(r.at, ".target", 7) == 0 ||
                   strncmp(r.at, ".address_size", 13) == 0) {
            take_line(&r);
        } else {
            const char *begin = r.at;
            const char *brace = begin + strcspn(begin, "(;");
            if (*brace == '(' && std::string(begin, brace).find(".entry") != std::string::npos) {
                entry(&r, kernels);
            } else {
                const std::string statement = take_until(&r, ";");
                if (statement.find(".shared") != std::string::npos)
                    shared_variable(&r, statement, &r.shared);
            }
        }
    }
}

/* --- what nvcc's objects call ---------------------------------------------------------------- */

struct module {
    const char *text; /* NULL: none found, or read */
    std::vector<struct ptx_kernel *> kernels;
};
struct entry_of { /* a __global__ function */
    struct module *in;
    std::string name;
    struct ptx_kernel *kernel;
};

static std::map<const void *, entry_of> *entries;
static std::vector<struct module *> *modules;

struct fat_header { /* of a fat binary: the entries lie behind it */
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};
struct fat_wrapper {
    int magic, version;
    const struct fat_header *data;
    void *unused;
};

extern "C" void **__cudaRegisterFatBinary(void *wrapper)
{
    if (!modules) {
        modules = new std::vector<struct module *>();
        entries = new std::map<const void *, entry_of>();
    }
    const struct fat_header *fat = ((const struct fat_wrapper *)wrapper)->data;
    const char *begin = (const char *)fat + fat->header_bytes;
    struct module *m = new module();
    /* PTX lies there as text that ends with a zero, where it is not compressed. */
    m->text = (const char *)memmem(begin, fat->bytes, ".version ", 9);
    modules->push_back(m);
    return (void **)(void *)m;
}
extern "C" void __cudaRegisterFatBinaryEnd(void **)
{
}
extern "C" void __cudaUnregisterFatBinary(void **)
{
}
extern "C" void __cudaRegisterFunction(void **m, const char *host, char *, const char *name, int,
                                       uint3 *, uint3 *, dim3 *, dim3 *, int *)
{
    (*entries)[host] = {(struct module *)(void *)m, name, NULL};
}

static struct ptx_kernel *kernel_of(const void *host)
{
    entry_of *e = &entries->at(host);
    if (e->in->text) {
        cudasim_ptx_load(e->in->text, &e->in->kernels);
        e->in->text = NULL;
    }
    for (size_t i = 0; i < e->in->kernels.size() && !e->kernel; i++)
        if (e->in->kernels[i]->name == e->name)
            e->kernel = e->in->kernels[i];
    return e->kernel;
}

static thread_local struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} configured;

extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                cudaStream_t stream)
{
    configured = {grid, block, shared, stream};
    return 0;
}
extern "C" cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
                                                  void *stream)
{
    *grid = configured.grid;
    *block = configured.block;
    *shared = configured.shared;
    *(cudaStream_t *)stream = configured.stream;
    return cudaSuccess;
}

extern "C" cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **args,
                                        size_t shared, cudaStream_t stream)
{
    struct ptx_kernel *k = kernel_of(host);
    if (!k) {
        cudasim_say("no PTX of kernel %s", entries->at(host).name.c_str());
        return cudaErrorNoKernelImageForDevice;
    }
    unsigned char *packed = (unsigned char *)calloc(1, k->param_bytes + 1);
    for (size_t i = 0; i < k->params.size(); i++)
        memcpy(packed + k->params[i].offset, args[i], k->params[i].bytes);
    return cudasim_submit_ptx(host, k, grid, block, shared, stream, packed, k->param_bytes);
}
extern "C" cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    *kernel = (cudaKernel_t)host;
    return cudaSuccess;
}
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                                          size_t shared, cudaStream_t stream)
{
    return cudaLaunchKernel((const void *)kernel, grid, block, args, shared, stream);
}

/* --- counts ---------------------------------------------------------------------------------- */

static struct counts_at_end {
    ~counts_at_end()
    {
        const char *path = getenv("ELAPSE_CUDASIM_COUNTS");
        FILE *f = path && modules ? fopen(path, "a") : NULL;
        if (!f)
            return;
        for (const struct module *m : *modules)
            for (const struct ptx_kernel *k : m->kernels)
                if (k->launches > 0)
                    cudasim_ptx_write_counts(k, f);
        fclose(f);
    }
} counts_at_end_;
