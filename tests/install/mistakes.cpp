// Mistakes that the compiler must refuse, each with how temper's words for it
// begin, and in their places what is right. Compiled by scripts/check-install.
#include <functional>
#include <memory>

#include <torch/torch.h>

#include <temper/temper.h>

using torch::Tensor;

struct HidingImpl : temper::Module<HidingImpl> {
#ifdef MISTAKES // a member of this module is named like one of
  bool is_compiled = false;
#else
  bool is_ready = false;
#endif
  void reset() override {}
};
TEMPER_MODULE(Hiding);
Hiding hiding;

struct EmptyImpl : temper::Module<EmptyImpl> {
#ifdef MISTAKES // this module is abstract
  // The base is a torch::nn::Cloneable.
#else
  void reset() override {}
#endif
};
TEMPER_MODULE(Empty);
Empty empty;

struct WideImpl : temper::Module<WideImpl> {
  explicit WideImpl(int64_t) {}
  void reset() override {}
};
TEMPER_MODULE(Wide);
#ifdef MISTAKES // the module has no such public constructor
Wide wide;
#else
Wide wide{nullptr};
#endif

struct ObservedImpl : temper::Module<ObservedImpl> {
  std::function<void()> observer;
  void reset() override {}
#ifdef MISTAKES // TEMPER_FIELDS cannot watch a field of this type
  TEMPER_FIELDS(observer)
#else
  TEMPER_IGNORE(observer)
#endif
};
TEMPER_MODULE(Observed);
Observed observed;

// Private members: what it is made of can't be told.
class Closed {
 public:
  explicit Closed(int64_t n) : n_(n) {}

 private:
  int64_t n_;
#ifdef MISTAKES // this type cannot be an argument or a result
#else
 public:
  TEMPER_FIELDS(n_)
#endif
};

Tensor takes_one(Tensor x) {
  auto f = temper::compile([](Tensor y, const Closed&) { return y + 1; });
  return f(x, Closed(1));
}

class Listed {
 public:
  Tensor x;
  std::shared_ptr<Tensor> shared;
#ifdef MISTAKES // a class with TEMPER_FIELDS lists a member that
  TEMPER_FIELDS(x, shared)
#else
  TEMPER_FIELDS(x)
#endif
};

Tensor takes_listed(const Listed& listed) {
  return temper::compile([](const Listed& l) { return l.x; })(listed);
}

void returns_one(Tensor x) {
  auto f = temper::compile([](Tensor y) {
#ifdef MISTAKES // this type cannot be an argument or a result
    return std::make_shared<Tensor>(y);
#else
    return std::make_tuple(y);
#endif
  });
  f(x);
}

double scale = 2;
#ifdef MISTAKES // only variables can be watched: this is a temporary
auto scaled = temper::compile([](Tensor x) { return x * scale; }, 2.0);
#else
auto scaled = temper::compile([](Tensor x) { return x * scale; }, scale);
#endif

WideImpl module(1);
#ifdef MISTAKES // a module must outlive the function that
auto with_module = temper::compile([](Tensor x) { return x; }, WideImpl(1));
#else
auto with_module = temper::compile([](Tensor x) { return x; }, module);
#endif

torch::nn::Linear fc(2, 2);
#ifdef MISTAKES // pass the module's holder or std::shared_ptr; this
auto copy = temper::compile(*fc);
#endif
#ifdef MISTAKES // pass the module's holder or std::shared_ptr, not a
auto pointer = temper::compile(fc.get());
#endif
#ifdef MISTAKES // compile() takes a lambda, a function, the holder or
auto number = temper::compile(3);
#endif
auto compiled = temper::compile(fc);
