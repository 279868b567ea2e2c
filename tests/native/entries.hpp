// Calls of the kernel's functions by name. The library says what their parameters are, and each call is compared with
// that.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

struct Described {
  const char *name, *type, *parameters;
  void (*function)();
};
extern "C" {
const char* sg_isa();
int sg_entries(const Described**);
}

template <class A> constexpr char code() {
  if (std::is_pointer<A>::value) return 'p';
  if (std::is_same<A, float>::value) return 'f';
  if (std::is_same<A, double>::value) return 'd';
  return std::is_same<A, int64_t>::value ? 'l' : std::is_same<A, int>::value ? 'i' : '?';
}
// Pointers are passed as pointers to anything, and truth values as numbers.
template <class A> A passed(A x) { return x; }
template <class A> const void* passed(A* x) { return x; }
inline const void* passed(std::nullptr_t) { return nullptr; }
inline int passed(bool x) { return x; }

class Function {
  const Described* it = nullptr;
  template <class... A> int call(A... x) const {
    const char given[] = {code<A>()..., 0};
    if (std::strcmp(given, it->parameters)) {
      std::fprintf(stderr, "%s expects %s, called with %s\n", it->name, it->parameters, given);
      std::abort();
    }
    return ((int (*)(A...))it->function)(x...);
  }

 public:
  Function(const char* name, const char* type) {
    const Described* list;
    for (int left = sg_entries(&list); left--; list++)
      if (!std::strcmp(list->name, name) && !std::strcmp(list->type, type)) it = list;
    if (!it) {
      std::fprintf(stderr, "there is no %s of %s\n", name, type);
      std::abort();
    }
  }
  template <class... A> int operator()(A... x) const { return call(passed(x)...); }
};

// The functions for real matrices of one type and, with "complex" before their names, for complex matrices.
template <class T> struct Entries {
  Function operator()(const char* name) const {
    const bool wide = std::is_same<T, double>::value, real = std::strncmp(name, "complex ", 8);
    return real ? Function(name, wide ? "f64" : "f32") : Function(name + 8, wide ? "c128" : "c64");
  }
};
