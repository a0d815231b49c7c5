# Finds LibTorch and makes the imported target temper::torch of it. Included by
# temper's own build and, installed, by find_package(temper): one place decides
# which LibTorch is right.
#
# The wheel's own CMake config is not used: it asks for the CUDA toolkit, which
# temper does not need.

# temper_import_torch(<folder> <expected version> <remedy>)
function(temper_import_torch root expected remedy)
  if(TARGET temper::torch)
    return()
  endif()
  if(NOT EXISTS "${root}/lib/libtorch_cpu.so")
    message(FATAL_ERROR
      "temper: LibTorch not found, expected ${expected}.\n"
      "'${root}' holds no lib/libtorch_cpu.so.\n${remedy}")
  endif()

  set(found "unknown")
  foreach(header torch/headeronly/version.h
                 torch/csrc/api/include/torch/version.h)
    if(EXISTS "${root}/include/${header}")
      file(STRINGS "${root}/include/${header}" lines
        REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
      if(numbers MATCHES "^[0-9]+;[0-9]+;[0-9]+$")
        string(REPLACE ";" "." found "${numbers}")
        break()
      endif()
    endif()
  endforeach()
  # Its internals change from one minor version to the next.
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" found_minor "${found}")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" expected_minor "${expected}")
  if(NOT found_minor STREQUAL expected_minor)
    message(FATAL_ERROR
      "temper: wrong LibTorch: found ${found}, expected ${expected_minor}.\n"
      "Found in '${root}'.\n${remedy}")
  endif()

  add_library(temper::c10 SHARED IMPORTED)
  set_target_properties(temper::c10 PROPERTIES
    IMPORTED_LOCATION "${root}/lib/libc10.so")

  add_library(temper::torch SHARED IMPORTED)
  set_target_properties(temper::torch PROPERTIES
    IMPORTED_LOCATION "${root}/lib/libtorch_cpu.so")
  # Imported targets are SYSTEM for those who use them.
  target_include_directories(temper::torch INTERFACE
    "${root}/include" "${root}/include/torch/csrc/api/include")
  target_compile_definitions(temper::torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
  target_compile_features(temper::torch INTERFACE cxx_std_20)
  # at::parallel_for is a header: without -fopenmp it is silently serial in
  # whoever includes it.
  target_compile_options(temper::torch INTERFACE -fopenmp)
  # libtorch_cpu finds the two CUDA libraries by its own RPATH, and loads them
  # from there; the linker does not look.
  target_link_options(temper::torch INTERFACE
    -fopenmp LINKER:--allow-shlib-undefined)
  target_link_libraries(temper::torch INTERFACE temper::c10)
  message(STATUS "LibTorch ${found}: ${root}")
endfunction()
