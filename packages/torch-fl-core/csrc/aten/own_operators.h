// Owns: the list of operators that are flagos' own because boxing cannot say them: they make, copy
// or reinterpret storage, or choose between implementations.
#pragma once

namespace torch_fl {

// Each registers its operators with the dispatcher; once per process, before boxing is installed.
void install_factories();
void install_copies();
void install_views();
void install_storage_operators();
void install_attention();
void install_fused_attention();
void install_batch_norm();
void install_library_choices();
void install_deterministic_padding();
void install_recurrent_cells();
void install_recurrent_layers();
void install_dropout();
void install_histogram();
void install_autocast();

}  // namespace torch_fl
