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

// What is wrong with a word that points to memory of unknown content, in an
// object of a module's class or, without one, in a closure; and the remedy.
std::string opaque_reason(const Module* module, bool is_function) {
  const char* const what = is_function
      ? " hold what a std::function has captured, which can't be watched; "
      : " point to memory whose content can't be watched (of a container, a "
        "long string, a pointer); ";
  if (module == nullptr) {
    return c10::str(
        what,
        is_function
            ? "use a class with operator() and TEMPER_FIELDS(...) in its place, "
              "and "
            : "",
        "capture the variable by reference and name it in ",
        "temper::compile(f, variable)");
  }
  const std::string type = type_name(*module);
  return c10::str(
      " (",
      type,
      ")",
      what,
      is_function
          ? "use a class with operator() and TEMPER_FIELDS(...) in its place, "
            "and list it in TEMPER_FIELDS(...)"
          : "list that field in TEMPER_FIELDS(...)",
      ", or in TEMPER_IGNORE(...) if no result depends on it. gdb's 'ptype /o ",
      type,
      "' tells which field it is");
}

// A module of the tree.
struct Node {
  const Module* module = nullptr;
  std::string path; // Empty for the only root.
  std::string label; // The path, or the type's name for a root.
  std::shared_ptr<const ModuleType> type; // Null: unknown.
  const std::byte* begin = nullptr; // The most derived object.
  std::vector<Field> holders; // Declared fields that hold modules.
};

// The control block of the shared_ptrs that own a module; null if none do.
const void* control_block(const Module& module) {
  // libstdc++: {pointer, control block}.
  const std::weak_ptr<const Module> weak = module.weak_from_this();
  std::array<const void*, 2> words{};
  static_assert(sizeof words == sizeof weak);
  std::memcpy(words.data(), static_cast<const void*>(&weak), sizeof weak);
  return words[1];
}

struct Memory {
  const std::byte* begin = nullptr;
  size_t size = 0;
  std::string name;
};

} // namespace

struct Watch::Roots {
  std::vector<Module*> modules;
  std::vector<Memory> ranges;
  std::vector<const void*> addresses;
  std::vector<Field> fields;
};

namespace {

class Taker {
 public:
  explicit Taker(const std::vector<Field>& fields) {
    for (const Field& field : fields) {
      declare(field, "", holders_);
    }
  }

  void collect(Module& root, bool only);
  void note(const std::vector<Memory>& ranges);
  KnownMemory& known() {
    return known_;
  }
  std::shared_ptr<const Snapshot> take(const std::vector<Memory>& ranges);

 private:
  void collect(
      const Module& module,
      const std::string& path,
      std::string label);
  void declare(Field field, const std::string& path, std::vector<Field>& to);
  void join_holes();
  void take_contents(const std::vector<Field>& fields);
  void take_module(const Node& node);
  void take_tensors(const Node& node, const Tensors& tensors, graph::Role role);
  // What of [begin, end) is no hole.
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

  std::vector<Field> fields_; // Declared ones that hold no modules.
  std::vector<Field> holders_; // Of no module, but holding some.
  // What is declared, ignored or padding: unordered until `join_holes`, then in
  // order and disjoint.
  std::vector<std::pair<const std::byte*, const std::byte*>> holes_;
  std::vector<Node> nodes_;
  std::unordered_set<const Module*> visited_;
  KnownMemory known_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

void Taker::collect(Module& root, bool only) {
  std::string name = type_name(root);
  collect(root, only ? "" : name, name);
}

void Taker::collect(
    const Module& module,
    const std::string& path,
    std::string label) {
  if (!visited_.insert(&module).second) {
    return;
  }
  Node node;
  node.module = &module;
  node.path = path;
  node.label = std::move(label);
  node.type = module_type(module);
  node.begin =
      static_cast<const std::byte*>(dynamic_cast<const void*>(&module));
  std::vector<Field> fields;
  if (node.type != nullptr) {
    for (const detail::Gap& gap : node.type->padding) {
      holes_.emplace_back(node.begin + gap.begin, node.begin + gap.end);
    }
    if (node.type->fields) {
      fields = node.type->fields(module);
    }
  }
  const size_t index = nodes_.size();
  nodes_.push_back(std::move(node));
  for (const auto& child : children_of(module)) {
    if (child.value() != nullptr) {
      std::string child_path = join(path, child.key());
      collect(*child.value(), child_path, child_path);
    }
  }
  std::vector<Field> holders;
  for (Field& field : fields) {
    declare(std::move(field), path, holders);
  }
  nodes_[index].holders = std::move(holders);
}

// Modules that the field holds are collected, and the field goes to `to`.
void Taker::declare(
    Field field,
    const std::string& path,
    std::vector<Field>& to) {
  field.name = join(path, field.name);
  const auto* begin = static_cast<const std::byte*>(field.begin);
  holes_.emplace_back(begin, begin + field.size);
  if (!field.read) {
    return;
  }
  known_.add_address(begin); // A reference member is a pointer to it.
  FieldContent content;
  field.read(content);
  for (size_t i = 0; i < content.modules.size(); ++i) {
    std::string name = field.name;
    if (content.modules.size() > 1) {
      name += c10::str('[', i, ']');
    }
    collect(*content.modules[i], name, name);
  }
  (content.modules.empty() ? fields_ : to).push_back(std::move(field));
}

void Taker::join_holes() {
  std::sort(holes_.begin(), holes_.end());
  size_t count = 0;
  for (const auto& [begin, end] : holes_) {
    if (count != 0 && begin <= holes_[count - 1].second) {
      holes_[count - 1].second = std::max(holes_[count - 1].second, end);
    } else {
      holes_[count++] = {begin, end};
    }
  }
  holes_.resize(count);
}

void Taker::note(const std::vector<Memory>& ranges) {
  for (const Node& node : nodes_) {
    known_.add_address(node.module);
    if (const void* block = control_block(*node.module)) {
      known_.add_address(block);
    }
    known_.add_object(
        node.begin, node.type == nullptr ? sizeof(Module) : node.type->size);
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
  join_holes();
  // What keeps modules alive comes before them.
  take_contents(holders_);
  for (const Node& node : nodes_) {
    take_module(node);
    take_contents(node.holders);
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
  take_contents(fields_);
  state_->seal();
  return state_;
}

void Taker::take_contents(const std::vector<Field>& fields) {
  for (const Field& field : fields) {
    state_->add_content(field.name, field.read);
  }
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

  if (node.type == nullptr) {
    state_->set_unguardable(c10::str(
        "the fields of '",
        node.label,
        "' (",
        type_name(module),
        ") can't be watched, for the size of its type is not known; derive it ",
        "from temper::Module, register it as this type through the ",
        "register_module of a temper::Module, or name the type in ",
        "temper::know_modules<",
        type_name(module),
        ">()"));
    return;
  }
  // Module's last member is the training flag; a derived class may use the
  // padding behind it.
  const auto* base = reinterpret_cast<const std::byte*>(&module);
  const auto* own_begin =
      reinterpret_cast<const std::byte*>(&training_of(module)) + sizeof(bool);
  const std::byte* end = node.begin + node.type->size;
  const bool own = node.type->own;
  take_fields(node.begin, base, node.begin, node.label, &module, own);
  take_fields(own_begin, end, node.begin, node.label, &module, own);
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
          "nested, quantized or wrapped one); make it a plain strided tensor"));
    }
  }
}

std::vector<std::pair<const std::byte*, const std::byte*>> Taker::undeclared(
    const std::byte* begin,
    const std::byte* end) const {
  std::vector<std::pair<const std::byte*, const std::byte*>> parts;
  auto hole = std::partition_point(
      holes_.begin(), holes_.end(), [&](const auto& other) {
        return other.second <= begin;
      });
  for (; hole != holes_.end() && hole->first < end; ++hole) {
    if (begin < hole->first) {
      parts.emplace_back(begin, hole->first);
    }
    begin = hole->second;
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
        state_->set_unguardable(c10::str(
            path,
            ": a tensor that guards can't describe (a sparse, nested, "
            "quantized or wrapped one); make it a plain strided tensor, or "
            "list it in TEMPER_IGNORE(...) if no result depends on it"));
      }
    }
    if (scan.opaque != nullptr) {
      state_->set_unguardable(
          where(scan.opaque, sizeof(void*)) +
          opaque_reason(module, scan.opaque_function));
    }
  }
}

} // namespace

Watch::Watch() : roots_(std::make_unique<Roots>()) {}
Watch::~Watch() = default;
Watch::Watch(Watch&&) noexcept = default;
Watch& Watch::operator=(Watch&&) noexcept = default;

void Watch::add_module(Module& root) {
  roots_->modules.push_back(&root);
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
  for (Module* root : roots_->modules) {
    taker.collect(*root, roots_->modules.size() == 1);
  }
  for (const void* address : roots_->addresses) {
    taker.known().add_address(address);
  }
  taker.note(roots_->ranges);
  return taker.take(roots_->ranges);
}

std::shared_ptr<const Snapshot> Watch::unchanged(const Snapshot& then) const {
  return State::of(then).unchanged();
}

bool Watch::matches(const Snapshot& then) const {
  return State::of(then).matches();
}

std::string Watch::difference(const Snapshot& then) const {
  return State::of(then).difference();
}

} // namespace temper::dispatch
