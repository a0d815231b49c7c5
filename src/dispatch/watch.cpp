// Walks watched modules and closures and takes their state.
//
//  1. Collect the modules of all roots, each once, parents before children.
//  2. Note every watched object's memory and every registered tensor: what
//     scanned words may point to.
//  3. For each object in that order: save what holds its state, scan its
//     fields, follow what they hold. Comparing in the same order never reads
//     memory that the state compared so far does not keep alive.
#include "dispatch/watch.h"

#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "dispatch/watch_scan.h"
#include "dispatch/watch_state.h"

namespace temper::dispatch {

namespace {

using torch::nn::Module;
using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using Children = torch::OrderedDict<std::string, std::shared_ptr<Module>>;

// C++ ignores access in explicit instantiations. Members of LibTorch's Module
// that have no accessor are named this way, checked by the compiler; the build
// pins the version of LibTorch.
template <typename Tag, auto member>
struct Expose {
  friend auto get(Tag) {
    return member;
  }
};
struct Parameters {
  friend auto get(Parameters);
};
struct Buffers {
  friend auto get(Buffers);
};
struct ChildModules {
  friend auto get(ChildModules);
};
struct Training {
  friend auto get(Training);
};
template struct Expose<Parameters, &Module::parameters_>;
template struct Expose<Buffers, &Module::buffers_>;
template struct Expose<ChildModules, &Module::children_>;
template struct Expose<Training, &Module::is_training_>;

const Tensors& parameters_of(const Module& module) {
  return module.*get(Parameters());
}
const Tensors& buffers_of(const Module& module) {
  return module.*get(Buffers());
}
const Children& children_of(const Module& module) {
  return module.*get(ChildModules());
}
const bool& training_of(const Module& module) {
  return module.*get(Training());
}

// Without namespaces: "LinearImpl".
std::string type_name(const Module& module) {
  std::string name = c10::demangle(typeid(module).name());
  const size_t colon = name.rfind("::", name.find('<'));
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

// A module of the tree.
struct Node {
  const Module* module = nullptr;
  std::string path; // Empty for the only root.
  std::string label; // The path, or the type's name for a root.
  ModuleType type;
  const std::byte* begin = nullptr; // The most derived object,

  // of known size.
  const std::byte* end() const {
    return begin + type.size;
  }
};

// The control block of the shared_ptrs that own a module; null if none do.
const void* control_block(const Module& module) {
  // libstdc++: {pointer, control block}.
  const std::weak_ptr<const Module> weak = module.weak_from_this();
  std::array<const void*, 2> words{};
  static_assert(sizeof words == sizeof weak);
  std::memcpy(words.data(), &weak, sizeof weak);
  return words[1];
}

struct Memory {
  const std::byte* begin = nullptr;
  size_t size = 0;
  std::string name;
};

} // namespace

struct Watch::Roots {
  struct Root {
    Module* module = nullptr;
    size_t size = 0;
  };
  std::vector<Root> modules;
  std::vector<Memory> ranges;
  std::vector<const void*> addresses;
  std::vector<Field> fields;
};

namespace {

class Taker {
 public:
  explicit Taker(std::vector<Field> fields) : fields_(std::move(fields)) {}

  void collect(Module& root, size_t size, bool only);
  void note(const std::vector<Memory>& ranges);
  KnownMemory& known() {
    return known_;
  }
  std::shared_ptr<const Snapshot> take(const std::vector<Memory>& ranges);

 private:
  void collect(
      const Module& module,
      size_t size,
      std::string path,
      std::string label);
  void take_module(const Node& node);
  void take_tensors(const Node& node, const Tensors& tensors, graph::Role role);
  // What of [begin, end) no field declares.
  std::vector<std::pair<const std::byte*, const std::byte*>> undeclared(
      const std::byte* begin,
      const std::byte* end) const;
  void take_fields(
      const std::byte* begin,
      const std::byte* end,
      const std::byte* object,
      const std::string& label,
      const Module* module,
      bool own);

  std::vector<Field> fields_;
  std::vector<Node> nodes_;
  std::unordered_set<const Module*> visited_;
  KnownMemory known_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

void Taker::collect(Module& root, size_t size, bool only) {
  std::string name = type_name(root);
  collect(root, size, only ? "" : name, name);
}

void Taker::collect(
    const Module& module,
    size_t size,
    std::string path,
    std::string label) {
  if (!visited_.insert(&module).second) {
    return;
  }
  Node node;
  node.module = &module;
  node.path = path;
  node.label = std::move(label);
  node.type = module_type(module);
  if (node.type.size == 0) {
    node.type.size = size;
  }
  node.begin =
      static_cast<const std::byte*>(dynamic_cast<const void*>(&module));
  if (node.type.fields != nullptr) {
    for (Field& field : node.type.fields(module)) {
      field.name = join(path, field.name);
      fields_.push_back(std::move(field));
    }
  }
  nodes_.push_back(std::move(node));
  for (const auto& child : children_of(module)) {
    if (child.value() != nullptr) {
      std::string child_path = join(path, child.key());
      collect(*child.value(), 0, child_path, child_path);
    }
  }
}

void Taker::note(const std::vector<Memory>& ranges) {
  for (const Node& node : nodes_) {
    known_.add_address(node.module);
    if (const void* block = control_block(*node.module)) {
      known_.add_address(block);
    }
    known_.add_object(node.begin, std::max(node.type.size, sizeof(Module)));
    for (const Tensors* tensors :
         {&parameters_of(*node.module), &buffers_of(*node.module)}) {
      for (const auto& item : *tensors) {
        if (item.value().defined()) {
          known_.add_tensor(item.value().unsafeGetTensorImpl());
        }
      }
    }
  }
  for (const Memory& range : ranges) {
    known_.add_object(range.begin, range.size);
  }
}

std::shared_ptr<const Snapshot> Taker::take(const std::vector<Memory>& ranges) {
  for (const Node& node : nodes_) {
    take_module(node);
  }
  for (const Memory& range : ranges) {
    take_fields(
        range.begin,
        range.begin + range.size,
        range.begin,
        range.name,
        nullptr,
        false);
  }
  for (const Field& field : fields_) {
    if (field.read) {
      state_->add_content(field.name, field.read);
    }
  }
  state_->seal();
  return state_;
}

void Taker::take_module(const Node& node) {
  const Module& module = *node.module;
  const auto add = [&](State::Kind kind, const void* begin, size_t size) {
    state_->add_bytes(kind, node.label, node.begin, begin, size);
  };
  add(State::Kind::kType, &module, sizeof(void*));
  add(State::Kind::kTraining, &training_of(module), sizeof(bool));
  // libstdc++'s vectors start with begin and end.
  constexpr size_t kExtent = 2 * sizeof(void*);
  add(State::Kind::kParameters, &parameters_of(module).items(), kExtent);
  add(State::Kind::kBuffers, &buffers_of(module).items(), kExtent);
  add(State::Kind::kChildren, &children_of(module).items(), kExtent);

  take_tensors(node, parameters_of(module), graph::Role::kParameter);
  take_tensors(node, buffers_of(module), graph::Role::kBuffer);
  for (const auto& child : children_of(module)) {
    state_->add_bytes(
        State::Kind::kChildSlot,
        join(node.path, child.key()),
        node.begin,
        &child.value(),
        sizeof(void*));
  }

  if (node.type.size == 0) {
    state_->set_unguardable(c10::str(
        "the fields of '",
        node.label,
        "' (",
        type_name(module),
        ") can't be watched, for the size of its type is not known; derive it ",
        "from temper::Module, or register it through the register_module of a ",
        "temper::Module"));
    return;
  }
  // Module's last member is the training flag; a derived class may use the
  // padding behind it.
  const auto* base = reinterpret_cast<const std::byte*>(&module);
  const auto* own_begin =
      reinterpret_cast<const std::byte*>(&training_of(module)) + sizeof(bool);
  take_fields(node.begin, base, node.begin, node.label, &module, node.type.own);
  take_fields(
      own_begin, node.end(), node.begin, node.label, &module, node.type.own);
}

void Taker::take_tensors(
    const Node& node,
    const Tensors& tensors,
    graph::Role role) {
  for (const auto& item : tensors) {
    const std::string path = join(node.path, item.key());
    state_->add_bytes(
        State::Kind::kTensorSlot,
        path,
        node.begin,
        &item.value(),
        sizeof(void*));
    if (item.value().defined() &&
        !state_->add_tensor(item.value().unsafeGetTensorImpl(), {role, path})) {
      state_->set_unguardable(c10::str(
          "'",
          path,
          "' is a tensor that guards can't describe (a sparse, ",
          "nested, quantized or wrapped one)"));
    }
  }
}

std::vector<std::pair<const std::byte*, const std::byte*>> Taker::undeclared(
    const std::byte* begin,
    const std::byte* end) const {
  std::vector<std::pair<const std::byte*, const std::byte*>> holes;
  for (const Field& field : fields_) {
    const auto* first = static_cast<const std::byte*>(field.begin);
    const std::byte* last = first + field.size;
    if (first < end && begin < last) {
      holes.emplace_back(std::max(begin, first), std::min(end, last));
    }
  }
  std::sort(holes.begin(), holes.end());
  std::vector<std::pair<const std::byte*, const std::byte*>> parts;
  for (const auto& [first, last] : holes) {
    if (begin < first) {
      parts.emplace_back(begin, first);
    }
    begin = std::max(begin, last);
  }
  if (begin < end) {
    parts.emplace_back(begin, end);
  }
  return parts;
}

void Taker::take_fields(
    const std::byte* begin,
    const std::byte* end,
    const std::byte* object,
    const std::string& label,
    const Module* module,
    bool own) {
  const auto where = [&](const std::byte* slot, size_t size) {
    const auto offset = static_cast<size_t>(slot - object);
    return c10::str(
        "bytes ", offset, "..", offset + size - 1, " of '", label, "'");
  };
  for (const auto& [first, last] : undeclared(begin, end)) {
    const auto size = static_cast<size_t>(last - first);
    state_->add_bytes(State::Kind::kFields, label, object, first, size);
    Scan scan;
    if (own) {
      scan_own_fields(
          first,
          size,
          known_,
          module != nullptr && holds_functions(*module),
          scan);
    } else {
      scan_fields(first, size, known_, scan);
    }
    for (const Scan::Elements& elements : scan.elements) {
      state_->add_bytes(
          State::Kind::kElements,
          "vector at " + where(elements.slot, 3 * sizeof(void*)),
          elements.begin,
          elements.begin,
          elements.size);
    }
    for (const Scan::Tensor& tensor : scan.tensors) {
      // A vector's element is named by its vector.
      std::string path;
      for (const Scan::Elements& elements : scan.elements) {
        if (elements.begin <= tensor.slot &&
            tensor.slot < elements.begin + elements.size) {
          path = c10::str(
              where(elements.slot, 3 * sizeof(void*)),
              "[",
              static_cast<size_t>(tensor.slot - elements.begin) / sizeof(void*),
              "]");
        }
      }
      if (path.empty()) {
        path = where(tensor.slot, sizeof(void*));
      }
      if (!state_->add_tensor(tensor.impl, {graph::Role::kField, path})) {
        state_->set_unguardable(
            c10::str(path, ": a tensor that guards can't describe"));
      }
    }
    if (scan.opaque != nullptr) {
      const std::string place = where(scan.opaque, sizeof(void*));
      state_->set_unguardable(
          module != nullptr
              ? c10::str(
                    place,
                    " (",
                    type_name(*module),
                    ") point to memory whose content can't be watched (of a ",
                    "container, a long string, a pointer); declare that ",
                    "field with TEMPER_FIELDS(...), or with ",
                    "TEMPER_IGNORE(...) if no result depends on it")
              : c10::str(
                    place,
                    " point to memory whose content can't be watched (a ",
                    "capture by reference, a container); capture by value, or ",
                    "name the object in temper::compile(f, object)"));
    }
  }
}

} // namespace

Watch::Watch() : roots_(std::make_unique<Roots>()) {}
Watch::~Watch() = default;
Watch::Watch(Watch&&) noexcept = default;
Watch& Watch::operator=(Watch&&) noexcept = default;

void Watch::add_module(Module& root, size_t size_of_root) {
  roots_->modules.push_back({&root, size_of_root});
}

void Watch::add_range(const void* begin, size_t size, std::string name) {
  roots_->ranges.push_back(
      {static_cast<const std::byte*>(begin), size, std::move(name)});
}

void Watch::add_known_address(const void* address) {
  roots_->addresses.push_back(address);
}

void Watch::add_field(Field field) {
  roots_->fields.push_back(std::move(field));
}

std::shared_ptr<const Snapshot> Watch::take() const {
  Taker taker(roots_->fields);
  for (const Roots::Root& root : roots_->modules) {
    taker.collect(*root.module, root.size, roots_->modules.size() == 1);
  }
  for (const void* address : roots_->addresses) {
    taker.known().add_address(address);
  }
  taker.note(roots_->ranges);
  return taker.take(roots_->ranges);
}

bool Watch::matches(const Snapshot& then) const {
  return State::of(then).matches();
}

std::string Watch::difference(const Snapshot& then) const {
  return State::of(then).difference();
}

} // namespace temper::dispatch
