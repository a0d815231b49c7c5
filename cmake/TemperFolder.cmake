# The functions that make all targets: temper_folder, temper_test,
# temper_program.

# temper_folder(<name> [PCH core|torch] [DEPS <folder>...] [LIBS <library>...])
#
# The sources in src/<name>/ as the object library temper_<name>, with the
# include roots of itself and, through them, of the folders it depends on.
# A root is a folder of the build tree that holds one link, <name> to
# src/<name>, so that "graph/graph.h" resolves for those who may include it and
# for nobody else. A folder without sources is an interface only.
# PCH: which headers it gets precompiled: `core`, those that all of src/ uses;
# `torch`, <torch/torch.h>, which it may include then.
function(temper_folder name)
  cmake_parse_arguments(arg "" "PCH" "DEPS;LIBS" ${ARGN})
  set(root "${PROJECT_BINARY_DIR}/roots/${name}")
  file(MAKE_DIRECTORY "${root}")
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src/${name}" "${root}/${name}"
    SYMBOLIC)

  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${name}/*.cpp")
  set(target temper_${name})
  set(closure ${name})
  if(sources)
    add_library(${target} OBJECT ${sources})
    set(scope PUBLIC)
    set_property(GLOBAL APPEND PROPERTY TEMPER_OBJECT_FOLDERS ${name})
    if(arg_PCH STREQUAL "torch")
      target_precompile_headers(${target} REUSE_FROM temper_pch)
    elseif(arg_PCH STREQUAL "core")
      target_precompile_headers(${target} REUSE_FROM temper_core_pch)
    endif()
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope}
    "${PROJECT_SOURCE_DIR}/include" "${root}")
  target_link_libraries(${target} ${scope}
    temper_flags temper::torch ${arg_LIBS})
  foreach(dep IN LISTS arg_DEPS)
    if(NOT TARGET temper_${dep})
      message(FATAL_ERROR "temper_folder(${name}): no folder '${dep}' above it")
    endif()
    target_link_libraries(${target} ${scope} temper_${dep})
    get_property(below GLOBAL PROPERTY TEMPER_CLOSURE_${dep})
    list(APPEND closure ${below})
  endforeach()
  list(REMOVE_DUPLICATES closure)
  set_property(GLOBAL PROPERTY TEMPER_CLOSURE_${name} ${closure})
  set_property(GLOBAL APPEND PROPERTY TEMPER_FOLDERS ${name})
endfunction()

# temper_objects(<target> <scope> <folder>...): links the objects of these
# folders, and what they depend on, into a target. An object library hands its
# objects only to those who link it directly, hence the list.
function(temper_objects target scope)
  get_property(with_objects GLOBAL PROPERTY TEMPER_OBJECT_FOLDERS)
  set(folders)
  foreach(folder IN LISTS ARGN)
    get_property(below GLOBAL PROPERTY TEMPER_CLOSURE_${folder})
    list(APPEND folders ${below})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    if(folder IN_LIST with_objects)
      target_sources(${target} ${scope} $<TARGET_OBJECTS:temper_${folder}>)
    endif()
    get_target_property(libs temper_${folder} INTERFACE_LINK_LIBRARIES)
    list(FILTER libs EXCLUDE REGEX "^temper_")
    target_link_libraries(${target} ${scope} ${libs})
    target_include_directories(${target} ${scope}
      "${PROJECT_BINARY_DIR}/roots/${folder}")
  endforeach()
  target_include_directories(${target} ${scope} "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${target} ${scope} temper_flags)
endfunction()

# temper_test(<name> [LABEL <label>] [ALSO <folder>...] [ALL]
#             [LIBS <library>...])
#
# tests/<name>/*_test.cpp as one program <name>_tests, one entry of ctest: each
# start of LibTorch costs more than most tests. It links the objects of the
# folder that it tests and of those below it (ALSO: of further ones; ALL: of
# all), never libtemper.so as well: a second copy in one process would register
# the dispatcher fallback twice. With LIBS it links these instead. The target build_<label>_tests builds all of a label
# (unit, model, fuzz). Nothing happens while the folder has no tests.
function(temper_test name)
  cmake_parse_arguments(arg "ALL" "LABEL" "ALSO;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/tests/${name}/*_test.cpp")
  if(NOT sources)
    return()
  endif()
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  set(target ${name}_tests)
  add_executable(${target} ${sources})
  if(arg_LIBS)
    target_link_libraries(${target} PRIVATE ${arg_LIBS})
  elseif(arg_ALL)
    target_link_libraries(${target} PRIVATE temper_internal)
  else()
    temper_objects(${target} PRIVATE ${name} ${arg_ALSO})
  endif()
  # Its support library may touch what libtemper.so hides.
  if(arg_LIBS)
    target_link_libraries(${target} PRIVATE temper_flags
      GTest::gmock GTest::gtest_main)
  else()
    target_link_libraries(${target} PRIVATE temper_test_support)
  endif()
  target_precompile_headers(${target} REUSE_FROM temper_test_pch)
  if(NOT TARGET build_${arg_LABEL}_tests)
    add_custom_target(build_${arg_LABEL}_tests)
  endif()
  add_dependencies(build_${arg_LABEL}_tests ${target})
  add_test(NAME ${name} COMMAND ${target})
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT 1200)
endfunction()

# temper_program(<name> <source>... ): a program as a user would build it, on
# libtemper.so and its public headers.
function(temper_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE temper::temper temper_flags
    nlohmann_json::nlohmann_json CLI11::CLI11)
  target_precompile_headers(${name} REUSE_FROM temper_pch)
endfunction()
