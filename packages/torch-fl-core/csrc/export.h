// Owns: the one visibility macro. Everything is hidden unless the Python module needs it.
#pragma once
#define FLAGOS_API __attribute__((visibility("default")))
